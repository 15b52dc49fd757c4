"""Soak and chaos: an agent under random work and random mishaps for a long time, and what must hold whatever happens.

    python -m penstock_lab.soak                         # days of virtual time on the simulated Slurm
    python -m penstock_lab.soak --part real             # as root: twenty minutes of a real Slurm of its own
    python -m penstock_lab.soak --part resizes          # the same for MPI programs that are resized all the time
    python -m penstock_lab.soak --part idle             # what an agent costs after a day of virtual time

invariants      what must hold: pure functions over what was seen, each tested with a history that breaks it
load            the random work, the same for both parts
evidence        what an episode leaves behind, in the words of the invariants
world, chaos    virtual: the simulated Slurm, the agent over it, and everything that goes wrong
virtual, idle   virtual: episodes of storm and calm; the cost of an agent that lives for a day
site, real      real: a Slurm, an agent as a process that is killed, commands that fail, a disk that is full
agenda, mishaps real: what happens when, and what happens to agent, controller and commands
resizes, solver resizes: MPI programs under a policy that draws their sizes (random_policy)

docs/soak.md says what is done and what was measured.
"""
