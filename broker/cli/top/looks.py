"""What `broker top` looks like, and what it says of its keys."""

from __future__ import annotations

#: In the terminal's own colours, whichever these are.
CSS = """
* { background: ansi_default; color: ansi_default; scrollbar-size: 1 1; scrollbar-background: ansi_default;
    scrollbar-color: ansi_bright_black; scrollbar-color-hover: ansi_bright_black;
    scrollbar-color-active: ansi_bright_black;
    scrollbar-background-hover: ansi_default; scrollbar-background-active: ansi_default; }
#summary { height: auto; max-height: 4; overflow: hidden; }
#said, #keys { height: 1; overflow: hidden; }
ContentSwitcher, #page { height: 1fr; }
Table, #overview { height: 100%; overflow-x: hidden; }
Input { display: none; height: 1; border: none; padding: 0; }
Input.-shown { display: block; }
Question { align: center middle; }
#question { width: 90%; max-width: 80; height: auto; max-height: 80%; border: solid ansi_default; padding: 0 1; }
"""

#: The last line, the longest that fits.
KEYS = (
    "j jobs  n nodes  o overview  / find  s state  t sort  Enter open  c cancel  r retry  d remove  ? help  q quit",
    "j jobs  n nodes  o overview  / find  s state  t sort  ? help  q quit",
    "j n o pages  / s t list  ? help  q quit",
)
#: What each key does.
HELP = """\
j  n  o   jobs, nodes, overview
up down   a row; PgUp PgDn Home End as everywhere
Enter     the job's page: why, record, output; of a node: its jobs
/         find text in key, node, model or error
s         on to the next state, then all again
t         on to the next order
Esc       all jobs again; leave a job's page
c  r  d   cancel, retry, remove: asks first
q         quit; so does Ctrl-C

failed~   a guess, which the job's own word overrides
running?  its worker is silent""".splitlines()
