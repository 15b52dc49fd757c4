"""The strategies that come with Penstock, one in each file. `registry` knows these and those of extensions."""
