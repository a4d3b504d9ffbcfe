"""Prints a record of every run of an archive as Markdown, for bench/tools.sh.

    tools_record.py ARCHIVE DIR LONGHAUL

The paths of this host are replaced: DIR by DIR, the program by longhaul, private directories by RUN.
"""
import json, os, re, sqlite3, sys

archive, directory, program = sys.argv[1:]
home = os.path.expanduser("~")


def plain(text):
    text = text.replace(directory, "DIR").replace(program, "longhaul")
    text = re.sub(r"PATH=(/\S*longhaul-run-\w+/bin):\S*", r"PATH=\1:$PATH", text)
    text = re.sub(r"/\S*longhaul-run-\w+", "RUN", text)
    return re.sub(re.escape(home) + r"/\S*/s?bin/", "", text).replace(home, "HOME")


def short(line, most=160):
    """Cuts a long line after a word."""
    if len(line) <= most:
        return line.rstrip()
    return re.sub(r"\s*\S*$", "", line[:most]) + " ..." if " " in line[:most] else line[:most] + "..."


def cut(text, lines=12, kept=2048):
    """Returns the first lines. The archive keeps the last 2048 bytes of standard error, so the first line of a
    text of that length is a part of a line."""
    whole = len(text.encode()) < kept - 3
    found = [short(line) for line in plain(text).splitlines() if line.strip()]
    return "\n".join([*([] if whole else ["..."]), *found[not whole:lines], *(["..."] if len(found) > lines else [])])


rows = sqlite3.connect(archive).execute("SELECT record_json FROM run ORDER BY label, attempt")
for run in (json.loads(text) for (text,) in rows):
    outcome = ": ".join(filter(None, (run["outcome"]["status"], run["outcome"].get("reason"))))
    print(f"\n## {run['label']}\n\n{run['tool_version']}: {outcome}\n\n```text")
    print(cut("near$ " + run["near_command"]))
    if run["far_command"]:
        print(cut("far$ " + run["far_command"]))
    for end in ("near_output", "far_output"):
        output = run[end] or {}
        for stream in ("stdout", "stderr"):
            if output.get(stream, "").strip():
                print(f"-- {end.split('_')[0]}, {stream}")
                print(cut(output[stream]))
    print("```")
