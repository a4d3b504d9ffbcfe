"""What bench/test.sh runs: see there."""

import json
import re
import statistics
import subprocess
import sys

what, longhaul, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def ours(*extra):
    """Goodput and CPU seconds for each byte of longhaul over loopback."""
    def run(seconds, streams):
        command = [longhaul, "test", "127.0.0.1", "-p", "5310", "-t", seconds, "-P", streams]
        summary = json.loads(output([*command, "--json", *extra]))["summary"]
        cpu = sum(end["cpu_percent"] / 100 * end["seconds"]
                  for end in (summary["sender"], summary["receiver"]))
        return summary["throughput_bps"], cpu / summary["receiver"]["bytes"]
    return run


def iperf3(*extra):
    def run(seconds, streams):
        command = ["iperf3", "-c", "127.0.0.1", "-p", "5311", "-t", seconds, "-P", streams, "-J"]
        end = json.loads(output([*command, *extra]))["end"]
        percent = end["cpu_utilization_percent"]
        took = end["sum_received"]
        cpu = (percent["host_total"] + percent["remote_total"]) / 100 * took["seconds"]
        return took["bits_per_second"], cpu / took["bytes"]
    return run


def nuttcp(*extra):
    def run(seconds, streams):
        command = ["nuttcp", "-P5312", "-p5320", f"-T{seconds}", f"-N{streams}", "-fparse"]
        found = dict(re.findall(r"(\w+)=([\d.]+)", output([*command, *extra, "127.0.0.1"])))
        rate = float(found["rate_Mbps"]) * 1e6
        percent = float(found["tx_cpu"]) + float(found["rx_cpu"])
        return rate, percent / 100 * float(found["real_seconds"]) / (rate / 8 * float(
            found["real_seconds"]))
    return run


def table(tools, runs, seconds, counts):
    print(f"{'streams':>7}  {'tool':<17} {'median Gb/s':>11} {'best':>6} {'CPU s/GB':>9}"
          f" {'best':>6}")
    for count in counts:
        figures = {name: [] for name in tools}
        for _ in range(runs):
            for name, tool in tools.items():
                figures[name].append(tool(seconds, count))
        for name, found in figures.items():
            rates, costs = zip(*found)
            print(f"{count:>7}  {name:<17} {statistics.median(rates) / 1e9:>11.1f} "
                  f"{max(rates) / 1e9:>6.1f} {statistics.median(costs) * 1e9:>9.3f} "
                  f"{min(costs) * 1e9:>6.3f}", flush=True)


def over_loopback(tools):
    runs, seconds = int((arguments + ["3"])[0]), (arguments[1:] + ["2"])[0]
    table(tools, runs, seconds, arguments[2:] or ["1", "2", "4"])


def udp_ours(host, payload, rate, seconds):
    command = [longhaul, "test", host, "-p", "5310", "-u", "-l", str(payload), "-t", seconds]
    summary = json.loads(output([*command, "--json", *rate_of(rate, "-b")]))["summary"]
    udp = summary["udp"]
    missing = udp["sent"] - udp["received"]
    return summary["throughput_bps"], 100 * missing / max(udp["sent"], 1)


def udp_iperf3(host, payload, rate, seconds):
    command = ["iperf3", "-c", host, "-p", "5311", "-u", "-l", str(payload), "-t", seconds, "-J"]
    end = json.loads(output([*command, *(rate_of(rate, "-b") or ["-b", "0"])]))["end"]
    if "sum_received" in end:
        took = end["sum_received"]
        return took["bits_per_second"], took["lost_percent"]
    took = end["sum"]
    return took["bits_per_second"] * (1 - took["lost_percent"] / 100), took["lost_percent"]


def rate_of(rate, flag):
    return [flag, f"{rate:.4g}"] if rate else []


def clean_rate(tool, host, payload, seconds):
    """The highest rate received at under 0.1 % loss: unpaced, or paced from what came then down
    in steps of 30 %."""
    received, lost = tool(host, payload, None, seconds)
    unpaced = (received, lost)
    rate = received / 0.7
    while lost >= 0.1 and rate > 1e8:
        rate *= 0.7
        received, lost = tool(host, payload, int(rate), seconds)
    return received, lost, unpaced


def udp():
    seconds = (arguments + ["1"])[0]
    print(f"{'path':<9} {'payload':>7}  {'tool':<10} {'Gb/s':>6} {'lost %':>7}   unpaced")
    for path, host in [("loopback", "127.0.0.1"), ("veth", "198.18.0.2")]:
        for payload in (1472, 8972):
            for name, tool in [("longhaul", udp_ours), ("iperf3", udp_iperf3)]:
                rate, lost, (raw, raw_lost) = clean_rate(tool, host, payload, seconds)
                print(f"{path:<9} {payload:>7}  {name:<10} {rate / 1e9:>6.2f} {lost:>7.3f}   "
                      f"{raw / 1e9:.2f} Gb/s, {raw_lost:.3f} % lost", flush=True)


def paced_ours(payload, rate, seconds):
    """Sent bit/s of the whole test, and of each second."""
    command = [longhaul, "test", "127.0.0.1", "-p", "5310", "-u", "-l", str(payload), "-b", str(rate)]
    found = json.loads(output([*command, "-t", seconds, "--json"]))
    bits = 8 * payload
    whole = found["summary"]["udp"]["sent"] * bits / found["summary"]["sender"]["seconds"]
    times = [each["end_seconds"] - each["start_seconds"] for each in found["intervals"]]
    return whole, [each["udp"]["sent"] * bits / time
                   for each, time in zip(found["intervals"], times) if time > 0]


def paced_iperf3(payload, rate, seconds):
    command = ["iperf3", "-c", "127.0.0.1", "-p", "5311", "-u", "-l", str(payload), "-b", str(rate)]
    found = json.loads(output([*command, "-t", seconds, "-J"]))
    whole = found["end"]["sum"]
    return 8 * whole["bytes"] / whole["seconds"], [
        each["sum"]["bits_per_second"] for each in found["intervals"]]


def pace():
    """The sent rate beside the requested one. The worst second is the one that differs most from the
    rate, less one datagram, because a second has a whole number of datagrams."""
    seconds = (arguments + ["5"])[0]
    print(f"{'rate':>10} {'payload':>7}  {'tool':<10} {'whole test':>10} {'worst second':>12}")
    for rate in (64_000, 1_000_000, 12_000_000, 72_000_000, 500_000_000, 2_000_000_000,
                 10_000_000_000, 40_000_000_000):
        for payload in (100, 1472, 8972, 65_000):
            # A test has between two datagrams and a million per second.
            if not 2 / float(seconds) <= rate / 8 / payload <= 1e6:
                continue
            for name, tool in [("longhaul", paced_ours), ("iperf3", paced_iperf3)]:
                whole, each = tool(payload, rate, seconds)
                # The last interval can be short.
                off = [max(0, abs(one - rate) - 8 * payload) / rate for one in each[:-1] or each]
                print(f"{rate / 1e6:>8g} M {payload:>7}  {name:<10} {whole / rate:>10.4f} "
                      f"{100 * max(off):>10.2f} %", flush=True)


def wan_ours(path, seconds, flags, before="true"):
    command = [longhaul, "wan", "run", *path, "--far", f"{before}; {longhaul} serve", "--"]
    command += ["sh", "-c",
                f"{before}; {longhaul} test far -t {seconds} --json {' '.join(flags)}"]
    summary = json.loads(output(command))["summary"]
    steady = summary.get("steady")
    return (steady["throughput_bps"] if steady else 0), summary["throughput_bps"]


def wan_ours_roomy(path, seconds, flags):
    """With larger windows than the link's sites have: whether it is they that hold the rate back."""
    settings = ("tcp_rmem", "4096 131072 800000000"), ("tcp_wmem", "4096 16384 800000000")
    before = "; ".join(f"echo '{value}' > /proc/sys/net/ipv4/{name}" for name, value in settings)
    return wan_ours(path, seconds, flags, before)


def wan_iperf3(path, seconds, flags):
    """Steady: the median second of the later half, as sent."""
    command = [longhaul, "wan", "run", *path, "--far", "iperf3 -s", "--"]
    command += ["sh", "-c", f"sleep 0.5; iperf3 -c far -l 1M -t {seconds} -J {' '.join(flags)}"]
    found = json.loads(output(command))
    rates = [each["sum"]["bits_per_second"] for each in found["intervals"]]
    return statistics.median(rates[len(rates) // 2:]), found["end"]["sum_received"][
        "bits_per_second"]


def wan():
    runs, seconds = int((arguments + ["3"])[0]), (arguments[1:] + ["15"])[0]
    # The link counts IP packets of 9000 bytes: 8948 of them are payload beside the headers of IP
    # and TCP with time stamps.
    capacity = 10e9 * 8948 / 9000
    loss = ["--loss", "1e-4"]
    links = [([], []), (loss, ["-C", "bbr"]), (loss, ["-C", "bbr", "-P", "4"])]
    print(f"{'RTT':>6} {'link':<12} {'flags':<12} {'tool':<10} {'steady Gb/s':>11}"
          f" {'of capacity':>11} {'mean Gb/s':>9}   of capacity, every run")
    for rtt in ("90ms", "180ms"):
        for link, flags in links:
            tools = {"longhaul": wan_ours, "roomy": wan_ours_roomy, "iperf3": wan_iperf3}
            figures = {name: [] for name in tools}
            for _ in range(runs):
                for name, tool in tools.items():
                    path = ["--rtt", rtt, "--rate", "10G", *link]
                    figures[name].append(tool(path, seconds, flags))
            for name, found in figures.items():
                rate, mean = (statistics.median(of) for of in zip(*found))
                every = " ".join(f"{steady / capacity:.3f}" for steady, _ in found)
                print(f"{rtt:>6} {' '.join(link) or 'clean':<12} {' '.join(flags) or '-':<12} "
                      f"{name:<10} {rate / 1e9:>11.2f} {rate / capacity:>11.3f} "
                      f"{mean / 1e9:>9.2f}   {every}", flush=True)


if what == "tcp":
    over_loopback({"longhaul test": ours(), "iperf3": iperf3(), "iperf3 -l 1M": iperf3("-l", "1M"),
                   "nuttcp": nuttcp(), "nuttcp -l1m": nuttcp("-l1m")})
elif what == "zerocopy":
    over_loopback({"longhaul test -Z": ours("-Z"), "iperf3 -Z": iperf3("-Z"),
                   "iperf3 -Z -l 1M": iperf3("-Z", "-l", "1M")})
elif what == "udp":
    udp()
elif what == "pace":
    pace()
elif what == "wan":
    wan()
else:
    sys.exit(f"test.sh: unknown part '{what}': tcp, zerocopy, udp, pace or wan")
