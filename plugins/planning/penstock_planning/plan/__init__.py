"""The queue's plan as slots with prices, and workflows planned over them (Singh 2008, chapters 3 to 7)."""
