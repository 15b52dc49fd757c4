#!/bin/bash
# Whether this container does what it is for: the health check of the image. Ends with 0 when
#   all in one, login   the agent takes requests; before that a submission would find none
#   controller          slurmctld answers
#   node                slurmd answers
set -euo pipefail

# A command of Penstock would do the same with a hundred times the processor time.
ping='
import socket
with socket.socket(socket.AF_UNIX) as agent:
    agent.settimeout(10)
    agent.connect("/run/penstock/agent.sock")
    agent.sendall(b"{\"op\": \"ping\"}\n")
    raise SystemExit(b"\"ok\": true" not in agent.makefile("rb").readline())
'
case "$(cat /run/penstock-role)" in
whole | login) exec python3 -I -S -c "$ping" ;;
controller) exec scontrol ping ;;
node) exec scontrol show slurmd ;;
esac
exit 1
