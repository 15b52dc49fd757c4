"""Ways into a pool for other people's tools, one module a tool, which programs import as `penstock.tools.NAME`."""
