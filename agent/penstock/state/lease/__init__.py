"""One holder of the state among several hosts, by files that need nothing of the file system but exclusive creation.

Locks of the kernel end at the host on some network file systems (sshfs, NFS or Lustre without locks), and on others
outlive a host that died. So where several hosts see the state folder, its holder has a *lease*:

    agent.lease.N    the Nth holder's: who it is, and a beat that it counts up every few seconds
    agent.lease      a copy of the latest one, for people and for commands on other hosts
    agent.seen.*     since when a host has seen no beat of others; it outlives the process, for `penstock tick`
    penstock.db      its table `lease` holds N: what the holder of a lower number writes fails inside SQLite

Whoever wants the state creates the next number, which the file system grants to one alone, once all others are
released, or were silent for the lease's time by the *observer's* clock; clocks of hosts are never compared. A holder
that could not count its beat up for a third of that time acts no more until it can, and ends when its lease is gone.

machine      the rules, without any I/O: `take` and `Watch`
files        the files
fence        the number inside the database
holder       `Lease`: takes it, counts the beat up in a thread, says whether it is still sure
"""
