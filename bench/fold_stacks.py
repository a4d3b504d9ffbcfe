"""Folds the stacks of `perf script -F comm,ip,sym`: a line per stack, from the outermost function to the
innermost, with its number of samples. The argument is the smallest number that is printed."""

import collections
import sys


def stacks(lines):
    """Yields the words of each stack, the name of the thread first."""
    stack = []
    for line in lines:
        if not line.strip():
            if stack:
                yield [stack[0], *reversed(stack[1:])]
            stack = []
        elif line[0].isspace() and stack:
            stack.append(line.split(None, 1)[-1].strip())
        else:
            stack = [line.strip()]
    if stack:
        yield [stack[0], *reversed(stack[1:])]


def main():
    least = int(sys.argv[1])
    counts = collections.Counter(";".join(stack) for stack in stacks(sys.stdin))
    total, left = sum(counts.values()), 0
    for stack, count in counts.most_common():
        if count >= least:
            print(f"    {stack} {count}")
        else:
            left += count
    print(f"\n{total} samples, of which {left} are in stacks with fewer than {least}.")


if __name__ == "__main__":
    main()
