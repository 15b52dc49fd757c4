"""`penstock bench dmr`: what malleable jobs do to a cluster's queue (DMR paper, section 7), run again.

paper        what the paper reports
models       how fast its three applications are on so many nodes: fitted to the paper before any policy was written
workload     its workloads: who is submitted when
application  a malleable program in virtual time, as the library makes it behave
drive        a workload under the whole agent on the simulated Slurm
bound        a mean completion time that no scheduler goes below
table4       the versions of a workload, and the goals
nearness     how near the policies come to it
modes        synchronous against asynchronous checks
chapters     the parts of the command: measured, judged, drawn
"""
