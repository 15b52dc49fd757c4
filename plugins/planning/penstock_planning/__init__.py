"""Planning: slots and their prices, held slots, other sites, and where a task ends first."""
