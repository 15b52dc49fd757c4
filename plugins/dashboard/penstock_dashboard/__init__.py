"""`penstock dashboard`: a read-only page on loopback that shows what the agent sees, does and expects.

`server` speaks HTTP, `feed` asks the agent again and again, `data` makes what it says into what the page draws, and
`page/` is the page itself: plain files, served as they are.
"""
