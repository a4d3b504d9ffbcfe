"""Writes the kept table and runs of one plan, for bench/plans.sh.

    plans.py WORK DIR NAME SCALE SECONDS TOOK CODE
"""
import csv, datetime, os, sys

STOLEN = 0.10
KEPT = ["sequence", "attempt", "label", "workload", "work", "path", "streams", "window_bytes",
        "clients", "status", "reason", "throughput_bps", "bytes", "seconds", "durable_seconds",
        "near_cpu_seconds", "far_cpu_seconds", "emulator_cpu_seconds", "busy_share", "steal_share", "started_at",
        "notes"]
RESULTS = {0: "all runs are valid", 7: "some runs failed or are invalid",
           124: "ended by the time limit", 137: "killed at the time limit", 130: "interrupted"}


def clean(text):
    """Returns the text without paths of this host."""
    return text.replace(os.path.expanduser("~"), "HOME").replace(work, "WORK")


work, target, name, scale, seconds, took, code = sys.argv[1:]
code = int(code)
result = RESULTS.get(code, f"ended with code {code}")
if code in (124, 137) and os.path.exists(f"{work}/{name}.csv"):
    result += "; the table has the runs until then"
runs = []
if os.path.exists(f"{work}/{name}.csv"):
    with open(f"{work}/{name}.csv", newline="") as file:
        runs = list(csv.DictReader(file))
    with open(f"{target}/{name}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, KEPT, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: clean(value or "") for key, value in run.items()} for run in runs)
valid = [run for run in runs if run["status"] == "ok"]
stolen = [run for run in valid if float(run["steal_share"] or 0) > STOLEN]
table = "There is no table.\n"
if os.path.exists(f"{work}/{name}.table"):
    table = open(f"{work}/{name}.table").read()
elif os.path.exists(f"{work}/{name}.err"):
    table = "There is no table: " + (open(f"{work}/{name}.err").read().strip().splitlines() or ["?"])[-1] + "\n"
date = datetime.datetime.now(datetime.timezone.utc).strftime("%F %R UTC")
with open(f"{target}/{name}.md", "w") as file:
    file.write(f"# Plan `{name}`\n\n"
               f"{date}, `--repeats 1 --scale {scale}`, {seconds} s per memory run after 1 s omitted: "
               f"{len(runs)} runs in {took} s, {result}.\n")
    if stolen:
        file.write(f"\nThe hypervisor took more than {STOLEN:.0%} of the CPU time in these runs; their figures "
                   "are not used elsewhere:\n\n")
        for run in stolen:
            setting = " ".join(filter(None, [run["label"], run["work"], run["path"]]))
            file.write(f"- {setting}: {float(run['steal_share']):.0%}\n")
    file.write("\n" + clean(table))
    file.write(f"\n<!-- row: | [{name}]({name}.md) | {len(runs)} | {len(valid)} | "
               f"{len(runs) - len(valid)} | {len(stolen)} | {took} s | {result} | -->\n")
print(f"{name}: {len(runs)} runs, {len(valid)} valid, {len(stolen)} with much steal, {took} s, {result}")
