"""The name under which programs of users import the executor of pools; all else of pools is penstock-pool's."""
