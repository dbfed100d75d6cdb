"""Frame times of the placement map in the browser page, with a million chunks, in a Chromium without a window, and the memory of the page:

    make_metadata.py DIRECTORY/.metadata && page_frames.py SHARDSCOPE DIRECTORY [--profile]

Data files that are missing are made, without data in them; that of rank 1 is too short. An index file serves, too. Prints, for each way to move, what the script of a frame took by the clock, and at the end what it took of the processor. The latter does
not depend on who else uses the machine. Memory is that of the page's process and of its script, before and after a collection of garbage. --profile lists the functions that took most instead.
"""

import argparse
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Browser:
    """Driven through the debugging pipe: messages that end with a zero byte."""

    def __init__(self):
        self.profile = tempfile.mkdtemp()
        commands, self.out = os.pipe()
        self.answers, back = os.pipe()

        def pipes():
            # Out of the way first: either may be 3 or 4 itself.
            for end, spare in ((commands, 103), (back, 104)):
                os.dup2(end, spare)
            for spare, fixed in ((103, 3), (104, 4)):
                os.dup2(spare, fixed)
                os.close(spare)

        words = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + self.profile]
        self.process = subprocess.Popen(["chromium", *words, "--remote-debugging-pipe"], preexec_fn=pipes, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(back)
        self.received, self.last, self.session, self.trace, self.traced = b"", 0, None, [], False

    def call(self, method, limit=300, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session and not method.startswith("SystemInfo."):
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + limit
        while time.monotonic() < until:
            for said in self.said():
                if said.get("id") == self.last:
                    return said["result"]
        raise SystemExit(method + " was not answered")

    def said(self):
        if select.select([self.answers], [], [], 1)[0]:
            self.received += os.read(self.answers, 1 << 20)
        *messages, self.received = self.received.split(b"\0")
        for message in map(json.loads, messages):
            if message.get("method") == "Tracing.dataCollected":
                self.trace += message["params"]["value"]
            self.traced = self.traced or message.get("method") == "Tracing.tracingComplete"
            yield message

    def open(self, url):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=1600, height=1000, deviceScaleFactor=1, mobile=False)
        self.call("Performance.enable")
        self.memory("of an empty page")
        self.call("Page.navigate", url=url)

    def memory(self, when):
        """The page's process is the largest of those that show one: Chromium keeps an empty one ready."""
        parts = []
        for collected in (False, True):
            if collected:
                self.call("HeapProfiler.collectGarbage")
            metrics = {metric["name"]: metric["value"] for metric in self.call("Performance.getMetrics")["metrics"]}
            pages = [one["id"] for one in self.call("SystemInfo.getProcessInfo")["processInfo"] if one["type"] == "renderer"]
            resident, peak = (max(int(line.split()[1]) for page in pages for line in open(f"/proc/{page}/status") if line.startswith(field)) / 1024
                              for field in ("VmRSS", "VmHWM"))
            parts.append(f"{metrics['JSHeapUsedSize'] / 2**20:.1f} MiB of the script, {resident:.0f} MiB of the process")
        print(f"memory {when}: {parts[0]}; collected {parts[1]}; at most {peak:.0f} MiB")

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def until(self, condition):
        while not self.value("!!(" + condition + ")"):
            time.sleep(0.05)

    def end(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


def make_files(shardscope, directory):
    listed = json.loads(subprocess.run([shardscope, "ls", "--json", directory], stdout=subprocess.PIPE, check=True).stdout)
    for file in listed["files"]:
        path = os.path.join(directory, file["path"])
        if not os.path.exists(path):
            with open(path, "wb") as made:
                made.truncate(file["used"] // (2 if file["rank"] == 1 else 1))


MOVES = """(async () => {
  const frames = globalThis.shardscopeFrames, map = document.getElementById("map-scroll"), result = {};
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const wheel = (by) => map.dispatchEvent(new WheelEvent("wheel", { ctrlKey: true, deltaY: by, clientX: 800, clientY: 500, bubbles: true, cancelable: true }));
  const move = async (name, steps, step) => {
    frames.length = 0;
    for (let i = 0; i < steps; ++i) { step(i); await frame(); await frame(); }
    const sorted = [...frames].sort((a, b) => a - b), at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
    result[name] = [sorted.length, at(0.5), at(0.95), at(0.99), at(1)];
  };
  await move("scroll, all ranks", 150, (i) => { map.scrollTop = (i * 137) % (map.scrollHeight - map.clientHeight); });
  await move("zoom in", 110, () => wheel(-15));
  await new Promise((done) => setTimeout(done, 1500));
  await move("scroll, slices", 200, () => { map.scrollTop += 40; map.scrollLeft += 25; });
  await move("zoom out", 110, () => wheel(15));
  await move("zoom in and out", 120, (i) => wheel(i % 40 < 20 ? -60 : 60));
  return JSON.stringify(result);
})()"""


def figures(values):
    values = sorted(values)
    at = lambda share: values[min(len(values) - 1, int(len(values) * share))]
    return len(values), at(0.5), at(0.95), at(0.99), values[-1]


def row(name, count, *milliseconds):
    print(f"{name:34} {count:6} " + " ".join(f"{value:8.2f}" for value in milliseconds))


def functions(profile):
    nodes = {node["id"]: node["callFrame"] for node in profile["nodes"]}
    took = {}
    for node, delta in zip(profile["samples"], profile["timeDeltas"]):
        name = f"{nodes[node]['functionName'] or '(no name)'} {nodes[node]['url'].rsplit('/', 1)[-1]}:{nodes[node]['lineNumber'] + 1}"
        took[name] = took.get(name, 0) + delta / 1000
    for name, spent in sorted(took.items(), key=lambda entry: -entry[1])[:25]:
        print(f"{spent:10.1f} ms  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shardscope")
    parser.add_argument("directory")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if os.path.isdir(options.directory):
        make_files(options.shardscope, options.directory)
    with tempfile.TemporaryDirectory() as state:
        environment = dict(os.environ, XDG_STATE_HOME=state, XDG_CONFIG_HOME=state)
        server = subprocess.Popen([options.shardscope, "serve", "--json", "--level", "metadata", options.directory],
                                  stdout=subprocess.PIPE, env=environment)
        browser = Browser()
        try:
            browser.open(json.loads(server.stdout.readline())["url"])
            measure(browser, options.profile)
        finally:
            browser.end()
            server.terminate()
            server.wait()


def measure(browser, profile):
    print("load:", *os.getloadavg())
    browser.until("document.getElementById('state')?.textContent.startsWith('Live')")
    paints = browser.value("performance.getEntriesByType('paint').map((entry) => entry.startTime)[0]")
    browser.memory("of the page")
    browser.value("globalThis.began = performance.now(); document.getElementById('tab-placement').click()")
    browser.until("globalThis.shardscopeFrames.length")
    print(f"first paint of the page: {paints:.0f} ms; first frame of the map after a click: {browser.value('performance.now() - began'):.0f} ms")
    # Each tensor a row of its own: neither folded nor in a closed group.
    browser.value("document.querySelectorAll('#placement .bar input[type=checkbox]').forEach((box, i) => { if (i === 0 || i === 2) box.click(); })")
    browser.until("/[0-9]{3} rows/.test(document.getElementById('map-cell').textContent)")
    if profile:
        browser.call("Profiler.enable")
        browser.call("Profiler.start")
        browser.value(MOVES)
        return functions(browser.call("Profiler.stop")["profile"])
    browser.memory("with the map")
    categories = {"includedCategories": ["devtools.timeline"]}
    browser.call("Tracing.start", traceConfig=categories, transferMode="ReportEvents")
    moves = json.loads(browser.value(MOVES))
    browser.call("Tracing.end")
    while not browser.traced:
        list(browser.said())
    browser.memory("after moving")
    print(f"{'milliseconds':34} {'frames':>6} {'median':>8} {'95 %':>8} {'99 %':>8} {'worst':>8}")
    for name, values in moves.items():
        row(name, *values)
    for event, name in (("FireAnimationFrame", "processor time of a frame"), ("EventDispatch", "processor time of an event"),
                        ("MinorGC", "collections of young objects"), ("MajorGC", "collections of all objects")):
        spent = [one.get("tdur", 0) / 1000 for one in browser.trace if one.get("name") == event and one.get("ph") == "X"]
        if spent:
            row(name, *figures(spent))
    print("load:", *os.getloadavg())


if __name__ == "__main__":
    main()
