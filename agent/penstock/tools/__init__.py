"""Ways into Penstock for other people's tools, one module a tool.

Each imports the tool that it is named after, so nothing of Penstock imports these: the tool, or its user, does.
"""
