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


def cut(text, lines=12):
    found = [line[:160] for line in plain(text).splitlines() if line.strip()]
    return "\n".join(found[:lines] + (["..."] if len(found) > lines else []))


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
