"""Writes grafana-dashboard.json next to this script, from a compact table of panels."""

import json
import pathlib

# (title, unit, [(legend, expression)], description)
ROWS = [
    ("The job", [
        ("Examples per second", "short", [("{{instance}}", "rate(cairn_ps_examples_total[1m]) > 0")],
         "In accepted gradients, where the round log is written."),
        ("Loss", "none", [("{{instance}}", "cairn_worker_loss")], "Of each worker's last batch."),
        ("Version", "none", [("{{instance}}", "cairn_ps_version")], "Number of updates. The servers of one job stay at the same version."),
        ("Gradients", "cps", [("{{outcome}}", "sum by (outcome) (rate(cairn_ps_pushes_total[1m]))")],
         "By outcome."),
    ]),
    ("Step and round times", [
        ("A worker's step", "s",
         [("{{phase}} {{instance}}", "rate(cairn_worker_step_phase_seconds_sum[1m]) / rate(cairn_worker_step_phase_seconds_count[1m])")],
         "Mean times of waiting for the batch, computing, and waiting for the servers."),
        ("A round on a server", "s",
         [("median {{instance}}", "histogram_quantile(0.5, rate(cairn_ps_round_seconds_bucket[1m]))"),
          ("99 % {{instance}}", "histogram_quantile(0.99, rate(cairn_ps_round_seconds_bucket[1m]))")],
         "From the first gradient to the new version."),
        ("First to last gradient", "s",
         [("{{instance}}", "rate(cairn_ps_round_spread_seconds_sum[1m]) / rate(cairn_ps_round_spread_seconds_count[1m])")],
         "How long the fastest worker waits for the slowest one."),
        ("Last worker of a round", "percentunit",
         [("{{worker}}", "sum by (worker) (rate(cairn_ps_member_last_total[5m])) / ignoring(worker) group_left sum(rate(cairn_ps_member_last_total[5m]))")],
         "Fraction of rounds in which the worker is last. Even fractions are normal."),
    ]),
    ("Servers", [
        ("Received", "Bps", [("{{instance}}", "rate(cairn_ps_received_bytes_total[1m])")], "Gradients."),
        ("Sent", "Bps", [("{{instance}}", "rate(cairn_ps_sent_bytes_total[1m])")], "Values."),
        ("Update", "s",
         [("{{instance}}", "rate(cairn_ps_apply_seconds_sum[1m]) / rate(cairn_ps_apply_seconds_count[1m])")],
         "Averaging and optimizer of one update."),
        ("Job's memory", "percentunit",
         [("{{instance}}", "cairn_ps_job_memory_bytes / cairn_ps_job_memory_limit_bytes")], "Fraction of --memory_limit."),
    ]),
    ("Members and failures", [
        ("Workers", "none", [("{{state}}", "max by (state) (cairn_ps_members)")], "By state."),
        ("Staleness", "none",
         [("median", "histogram_quantile(0.5, sum by (le) (rate(cairn_ps_staleness_versions_bucket[1m])))"),
          ("99 %", "histogram_quantile(0.99, sum by (le) (rate(cairn_ps_staleness_versions_bucket[1m])))")],
         "Versions between the base of a gradient and its update."),
        ("Waiting pushes", "none", [("{{instance}}", "cairn_ps_staged_pushes")], "Pushes that wait for the decision of the sequencer."),
        ("Age of the newest checkpoint", "s", [("{{instance}}", "time() - cairn_worker_checkpoint_timestamp_seconds")],
         "The progress that a server failure would lose."),
    ]),
]
PER_ROW, WIDTH, HEIGHT = 4, 6, 8


def panel(identity, column, top, title, unit, targets, tells):
    return {
        "id": identity, "type": "timeseries", "title": title, "description": tells,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": column * WIDTH, "y": top, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0 if unit != "none" else None,
                                     "custom": {"lineWidth": 2, "fillOpacity": 8, "showPoints": "never"}},
                        "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [{"refId": chr(ord("A") + i), "expr": expression, "legendFormat": legend}
                    for i, (legend, expression) in enumerate(targets)],
    }


def dashboard():
    panels, top = [], 0
    for title, row in ROWS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": top, "w": PER_ROW * WIDTH, "h": 1}})
        for column, description in enumerate(row):
            panels.append(panel(len(panels) + 1, column, top + 1, *description))
        top += 1 + HEIGHT
    return {
        "title": "Cairn", "uid": "cairn", "tags": ["cairn"], "schemaVersion": 38, "version": 1, "editable": True,
        "refresh": "10s", "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]},
        "panels": panels,
    }


if __name__ == "__main__":
    path = pathlib.Path(__file__).with_name("grafana-dashboard.json")
    path.write_text(json.dumps(dashboard(), indent=1) + "\n")
