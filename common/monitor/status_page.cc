#include "common/monitor/status_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace cairn::monitor {
namespace {

constexpr char kStyle[] = R"(
:root{--ink:#1c2430;--soft:#66717f;--line:#e3e7ec;--card:#fff;--back:#f5f7f9;--mark:#2f6fde;--fill:#2f6fde1f;
--good:#1a8a4b;--bad:#c8372d;--bar:#2f6fde1a}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#95a1b1;--line:#2b333e;--card:#1a2029;--back:#12161c;
--mark:#6ea0ff;--fill:#6ea0ff26;--good:#4fc984;--bad:#ff7b70;--bar:#6ea0ff24}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1240px;margin:0 auto;padding:24px 20px 40px}
h1{font-size:22px;margin:0;display:inline}h2{font-size:13px;font-weight:600;color:var(--soft);margin:26px 0 8px;
text-transform:uppercase;letter-spacing:.05em}
.state{display:inline-block;margin-left:10px;padding:1px 10px;border-radius:11px;color:#fff;font-size:12px;
font-weight:600;vertical-align:3px;background:var(--good)}.state.bad{background:var(--bad)}
.headline{color:var(--soft);margin:4px 0 18px}
.grid{display:grid;gap:12px;grid-template-columns:repeat(4,1fr)}.grid.wide{grid-template-columns:1fr 1fr;margin-top:12px}
@media(max-width:720px){.grid{grid-template-columns:1fr 1fr}.grid.wide{grid-template-columns:1fr}}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:11px 14px}
.name{color:var(--soft);font-size:12px}.value{font-size:21px;font-weight:600;font-variant-numeric:tabular-nums;
overflow-wrap:anywhere}.note{color:var(--soft);font-size:12px}
.curve{display:flex;justify-content:space-between;align-items:baseline}.curve .value{font-size:16px}
svg{display:block;width:100%;height:auto;margin-top:6px}
svg text{fill:var(--soft);font-size:11px;font-family:inherit}svg .axis{stroke:var(--line);stroke-width:1}
svg .line{fill:none;stroke:var(--mark);stroke-width:1.8;stroke-linejoin:round}
svg .area{fill:var(--fill);stroke:none}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%}th,td{padding:7px 11px;text-align:left;white-space:nowrap;
border-bottom:1px solid var(--line)}tr:last-child td{border-bottom:0}th{color:var(--soft);font-weight:500;font-size:12px}
.num{text-align:right;font-variant-numeric:tabular-nums}td.bad{color:var(--bad);font-weight:600}
footer{color:var(--soft);font-size:12px;margin-top:26px}
)";

constexpr double kWidth = 560, kHeight = 150, kLeft = 52, kRight = 6, kTop = 8, kBottom = 20;

std::string Escape(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// Formats a number on an axis, with few digits.
std::string Tick(double value) {
  const double size = std::abs(value);
  if (size >= 1e9) return absl::StrFormat("%.3gG", value / 1e9);
  if (size >= 1e6) return absl::StrFormat("%.3gM", value / 1e6);
  if (size >= 1e4) return absl::StrFormat("%.3gk", value / 1e3);
  return absl::StrFormat("%.4g", value);
}

// The distance between the grid lines of an axis: 1, 2 or 5 times a power of ten, with about four lines in
// `range`.
double Spacing(double range) {
  const double rough = range / 3.5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

struct Range {
  double low = std::numeric_limits<double>::max(), high = std::numeric_limits<double>::lowest();
  bool empty() const { return low > high; }
};

Range RangeOf(const std::vector<History::Point>& points, size_t series) {
  Range range;
  for (const History::Point& point : points) {
    const double value = point.values[series];
    if (!std::isfinite(value)) continue;
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
  }
  if (range.empty()) return range;
  if (range.low > 0 && range.low < 0.6 * range.high) range.low = 0;
  if (range.high - range.low < 1e-9 * std::max(1.0, std::abs(range.high))) {
    range.low = range.low > 0 ? 0 : range.low - 1;
    range.high = range.high > 0 ? 1.25 * range.high : range.low + 2;
  } else {
    range.high += 0.05 * (range.high - range.low);
  }
  return range;
}

std::string Svg(const std::vector<History::Point>& points, size_t series) {
  std::string svg = absl::StrFormat("<svg viewBox=\"0 0 %g %g\">", kWidth, kHeight);
  const Range range = RangeOf(points, series);
  if (range.empty() || points.size() < 2) {
    return absl::StrCat(svg, "<text x=\"", kWidth / 2, "\" y=\"", kHeight / 2,
                        "\" text-anchor=\"middle\">nothing yet</text></svg>");
  }
  const double seconds = std::max(points.back().seconds, 1e-9);
  const auto x = [&](double at) { return kLeft + at / seconds * (kWidth - kLeft - kRight); };
  const auto y = [&](double value) {
    return kTop + (range.high - value) / (range.high - range.low) * (kHeight - kTop - kBottom);
  };
  const double spacing = Spacing(range.high - range.low);
  for (double tick = std::ceil(range.low / spacing) * spacing; tick <= range.high; tick += spacing) {
    const double shown = std::abs(tick) < spacing / 2 ? 0 : tick;
    absl::StrAppendFormat(&svg, "<line class=\"axis\" x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\"/>", kLeft,
                          kWidth - kRight, y(shown), y(shown));
    absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%s</text>", kLeft - 6,
                          y(shown) + 4, Tick(shown));
  }
  absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"%g\">0</text>", kLeft, kHeight - 4);
  absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\">%s</text>", kWidth - kRight,
                        kHeight - 4, InTime(seconds));
  // A gap in the values is a gap in the line.
  std::string run;
  double begin = 0, end = 0;
  const auto draw = [&] {
    if (run.empty()) return;
    const double floor = y(range.low);
    absl::StrAppendFormat(&svg, "<path class=\"area\" d=\"M%.1f,%.1f L%s L%.1f,%.1f Z\"/>", begin, floor, run,
                          end, floor);
    absl::StrAppend(&svg, "<path class=\"line\" d=\"M", run, "\"/>");
    run.clear();
  };
  for (const History::Point& point : points) {
    const double value = point.values[series];
    if (!std::isfinite(value)) {
      draw();
      continue;
    }
    end = x(point.seconds);
    if (run.empty()) begin = end;
    absl::StrAppendFormat(&run, "%s%.1f,%.1f", run.empty() ? "" : " ", end, y(value));
  }
  draw();
  return absl::StrCat(svg, "</svg>");
}

std::string Html(const StatusPage::Table& table) {
  std::string html = absl::StrCat("<h2>", Escape(table.title), "</h2><div class=\"scroll\"><table><tr>");
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const bool number = !table.rows.empty() && table.rows[0][i].number;
    absl::StrAppend(&html, number ? "<th class=\"num\">" : "<th>", Escape(table.columns[i]), "</th>");
  }
  absl::StrAppend(&html, "</tr>");
  for (const auto& row : table.rows) {
    absl::StrAppend(&html, "<tr>");
    for (const StatusPage::Cell& cell : row) {
      std::string style;
      if (cell.part >= 0) {
        const double percent = 100 * std::min(1.0, cell.part);
        style = absl::StrFormat(
            " style=\"background:linear-gradient(90deg,var(--bar) %.1f%%,transparent %.1f%%)\"", percent,
            percent);
      }
      absl::StrAppend(&html, "<td class=\"", cell.number ? "num" : "", cell.bad ? " bad" : "", "\"", style,
                      ">", Escape(cell.text), "</td>");
    }
    absl::StrAppend(&html, "</tr>");
  }
  if (table.rows.empty()) {
    absl::StrAppend(&html, "<tr><td colspan=\"", table.columns.size(), "\">", Escape(table.empty),
                    "</td></tr>");
  }
  return absl::StrCat(html, "</table></div>");
}

}  // namespace

std::string RenderHtml(const StatusPage& page) {
  std::string html = absl::StrCat(
      "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" "
      "content=\"5\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>",
      Escape(page.task), " ", Escape(page.state), "</title><style>", kStyle,
      "</style></head><body><main><h1>", Escape(page.task), "</h1><span class=\"state",
      page.well ? "" : " bad", "\">", Escape(page.state), "</span><p class=\"headline\">",
      Escape(page.headline), "</p><div class=\"grid\">");
  for (const StatusPage::Fact& fact : page.facts) {
    absl::StrAppend(&html, "<div class=\"card\"><div class=\"name\">", Escape(fact.name),
                    "</div><div class=\"value\">", Escape(fact.value), "</div><div class=\"note\">",
                    Escape(fact.note), "</div></div>");
  }
  absl::StrAppend(&html, "</div><div class=\"grid wide\">");
  for (const StatusPage::Curve& curve : page.curves) {
    absl::StrAppend(&html, "<div class=\"card\"><div class=\"curve\"><span class=\"name\">",
                    Escape(curve.title), "</span><span class=\"value\">", Escape(curve.value),
                    "</span></div>", Svg(page.history, curve.series), "</div>");
  }
  absl::StrAppend(&html, "</div>");
  for (const StatusPage::Table& table : page.tables) html += Html(table);
  absl::StrAppend(&html, "<footer>", Escape(page.footer), "</footer></main></body></html>\n");
  return html;
}

std::string WithCommas(double value) {
  if (!std::isfinite(value)) return "-";
  std::string digits = absl::StrFormat("%.0f", std::abs(value));
  for (auto at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return value < 0 && digits != "0" ? absl::StrCat("-", digits) : digits;
}

std::string InBytes(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (std::abs(bytes) >= 1000 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", unit == 0 || std::abs(bytes) >= 100 ? 0 : 1, bytes, kUnits[unit]);
}

std::string InTime(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 1e-3) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.1f ms", seconds * 1e3);
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const auto whole = static_cast<int64_t>(seconds);
  if (seconds < 3600) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %02d min", whole / 3600, whole % 3600 / 60);
}

}  // namespace cairn::monitor
