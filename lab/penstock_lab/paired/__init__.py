"""Evidence in pairs: one simulated queue, forked at one instant for each way of submitting a workflow.

Others' jobs arrive at the same times and run as long in every fork, so that only what the way itself does differs.
"""
