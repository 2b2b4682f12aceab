"""A run's /metrics page under the released Prometheus: promtool's checks, a real scrape, and every panel of the Grafana
dashboard in examples/operating answered with data.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))

import harness  # noqa: E402

DASHBOARD = ROOT / "examples" / "operating" / "grafana_dashboard.json"
SCRAPE = """
global: {{scrape_interval: 250ms}}
scrape_configs:
  - job_name: sluice
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


@unittest.skipUnless(shutil.which("prometheus") and shutil.which("promtool"),
                     "no prometheus: tools/bootstrap --integrations installs it")
class Scraped(harness.TestCase):
    def test_prometheus_takes_the_page_and_the_dashboard_shows_it(self):
        port = harness.free_port()
        self.config("scraped", log__metrics=f"127.0.0.1:{port}", train__steps=100_000)
        training = self.start_train("scraped", 4)
        page = f"http://127.0.0.1:{port}/metrics"
        self.assertTrue(harness.wait_until(lambda: self.has_steps(page, training), 60, pause_s=0.1))

        checked = subprocess.run(["promtool", "check", "metrics"], input=get(page), capture_output=True, check=False)
        complaints = [line for line in checked.stderr.decode().splitlines() if "error" in line.lower()]
        self.assertEqual(complaints, [])

        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "prometheus.yml").write_text(SCRAPE.format(port=port))
            own_port = harness.free_port()
            prometheus = subprocess.Popen(
                ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address=127.0.0.1:{own_port}", "--log.level=error"])
            try:
                query = f"http://127.0.0.1:{own_port}/api/v1/query?query="
                self.assertTrue(harness.wait_until(lambda: self.answers(query, "sluice_loss"), 60, pause_s=0.2))
                time.sleep(5)  # rates need two scrapes
                for title, expression in self.panels():
                    with self.subTest(panel=title):
                        result = json.loads(get(query + urllib.parse.quote(expression)))
                        self.assertEqual(result["status"], "success", expression)
                        # Of alarms there are none while nobody is slow.
                        if "sluice_alarm" not in expression:
                            self.assertTrue(result["data"]["result"], expression)
            finally:
                prometheus.terminate()
                prometheus.wait()
        self.end(training)

    @staticmethod
    def has_steps(page, process):
        assert process.poll() is None, process.communicate()[1][-2000:]
        try:
            return b"sluice_steps_total" in get(page)
        except OSError:
            return False

    @staticmethod
    def answers(query, expression):
        try:
            return bool(json.loads(get(query + expression))["data"]["result"])
        except (OSError, ValueError):
            return False

    @staticmethod
    def panels():
        dashboard = json.loads(DASHBOARD.read_text())
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield panel["title"], re.sub(r"\$__rate_interval", "5s", target["expr"]).replace("$job", "sluice")


if __name__ == "__main__":
    harness.main()
