"""Prints a record of every run of an archive as Markdown, for bench/tools.sh.

    tools_record.py ARCHIVE DIR LONGHAUL

ARCHIVE is matrix.sqlite, which has the end of standard error only, or a file of run documents (.json).
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


def cut(text, lines=24 if archive.endswith(".json") else 12, kept=2048):
    """Returns the first lines. matrix.sqlite keeps the last 2048 bytes of standard error, so the first line of
    a text of that length is a part of a line."""
    whole = archive.endswith(".json") or len(text.encode()) < kept - 3
    found = [short(line) for line in plain(text).splitlines() if line.strip()]
    return "\n".join([*([] if whole else ["..."]), *found[not whole:lines], *(["..."] if len(found) > lines else [])])


def records():
    """Returns the runs in order of label and attempt; of documents, the last attempt of each run."""
    if not archive.endswith(".json"):
        rows = sqlite3.connect(archive).execute("SELECT record_json FROM run ORDER BY label, attempt")
        return [json.loads(text) for (text,) in rows]
    text, runs, decoder = open(archive).read().strip(), [], json.JSONDecoder()
    while text:
        run, end = decoder.raw_decode(text)
        runs.append(run)
        text = text[end:].lstrip()
    runs.sort(key=lambda run: (run["label"], run["sequence"], run["attempt"]))
    return list({run["sequence"]: run for run in runs}.values())


print("\n`...` replaces the end of a long line, and omitted lines.")
for run in records():
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
