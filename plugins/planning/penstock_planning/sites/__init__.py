"""Other sites: who they are, how they are asked, and how data get from one to another."""
