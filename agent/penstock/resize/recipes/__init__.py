"""Elastic jobs as their users write them: the file, recipes for programs that people have, and the job script. Pure."""
