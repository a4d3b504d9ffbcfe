#!/bin/bash
# Measures the duration of the report of a large archive. Creates an archive of RUNS runs from one that
# `longhaul matrix` has measured, by repeating its runs with other numbers, figures changed by up to
# 5 %, and the same samples. Then times `longhaul report` in every format, three times each.
#
#     bench/report.sh ARCHIVE-DIR [RUNS]        LONGHAUL=target/release/longhaul
#
# ARCHIVE-DIR is not changed. Takes about a minute, the making included; needs sqlite3.
set -euo pipefail
source=$1 runs=${2:-10000}
longhaul=${LONGHAUL:-longhaul}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$source/matrix.sqlite" "$work/"
database=$work/matrix.sqlite

kept=$(sqlite3 "$database" "SELECT count(*) FROM run WHERE status = 'ok'")
copies=$(((runs + kept - 1) / kept - 1))
last=$(sqlite3 "$database" 'SELECT max(sequence) FROM run')
columns=$(sqlite3 "$database" "SELECT group_concat(name) FROM pragma_table_info('run')
    WHERE name NOT IN ('sequence', 'attempt', 'repeat', 'throughput_bps', 'record_json', 'seal')")
# Seals are left out of the copies: sqlite3 has no XXH3.
sqlite3 "$database" "
    CREATE TEMP TABLE pass AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n
        WHERE i < $copies) SELECT i FROM n;
    CREATE TEMP TABLE original AS SELECT * FROM run WHERE status = 'ok';
    INSERT INTO run (sequence, attempt, repeat, throughput_bps, record_json, $columns)
    SELECT sequence + i * $last, 1, repeat + i,
           CAST(throughput_bps * (0.95 + (abs(random()) % 1000) / 10000.0) AS INTEGER),
           json_set(record_json, '\$.sequence', sequence + i * $last, '\$.attempt', 1,
                    '\$.repeat', repeat + i), $columns
    FROM original, pass LIMIT $runs - $kept;
    UPDATE run SET record_json = json_set(record_json, '\$.throughput_bps', throughput_bps)
    WHERE seal IS NULL;
    INSERT INTO sample SELECT sample.sequence + i * $last, 1, sample.seconds, sample.throughput_bps
    FROM sample JOIN original USING (sequence, attempt), pass
    WHERE sample.sequence + i * $last IN (SELECT sequence FROM run);"
sqlite3 "$database" "SELECT 'runs', count(*) FROM run; SELECT 'samples', count(*) FROM sample"
echo "database $(stat -c %s "$database") bytes"
for format in html text markdown csv json; do
    for round in 1 2 3; do
        begun=$(date +%s.%N)
        "$longhaul" report "$work" --format "$format" >"$work/out"
        printf '%-9s round %d  %6.2f s  %9d bytes\n' "$format" "$round" \
            "$(echo "$(date +%s.%N) - $begun" | bc)" "$(stat -c %s "$work/out")"
    done
done
