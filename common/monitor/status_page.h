// /statusz: an HTML page about one task, with facts, curves drawn as SVG, and tables. It contains no scripts
// and loads nothing from elsewhere. It reloads itself every few seconds and supports light and dark color
// schemes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/history.h"

namespace cairn::monitor {

struct StatusPage {
  struct Fact {
    std::string name, value;
    std::string note{};  // small text below
  };
  struct Curve {
    std::string title;
    std::string value;  // the newest value, as text
    size_t series = 0;  // index into History::Point::values
  };
  struct Cell {
    std::string text;
    bool number = false;  // right-aligned
    double part = -1;     // 0 to 1: drawn as a bar behind the text; below 0: none
    bool bad = false;     // highlighted
  };
  struct Table {
    std::string title;
    std::vector<std::string> columns;
    std::vector<std::vector<Cell>> rows;
    std::string empty = "none";  // shown if there are no rows
  };

  std::string task;      // "ps/0"
  std::string state;     // "ready"
  bool well = true;      // colors the state
  std::string headline;  // a sentence
  std::vector<Fact> facts{};
  std::vector<Curve> curves{};
  std::vector<History::Point> history{};
  std::vector<Table> tables{};
  std::string footer{};
};

std::string RenderHtml(const StatusPage& page);

// Format table cells: "12,800", "3.2 MiB", "1 h 02 min", "12.3 ms".
std::string WithCommas(double value);
std::string InBytes(double bytes);
std::string InTime(double seconds);

}  // namespace cairn::monitor
