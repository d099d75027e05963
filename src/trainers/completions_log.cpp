#include "trainers/completions_log.h"

#include <fmt/format.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/core/printable.h>

#include <algorithm>
#include <set>

#include "data/sources/column_kind.h"
#include "data/sources/parquet_writer.h"

namespace gradus {
namespace {

constexpr size_t kDefaultWidth = 100;
constexpr size_t kNarrowest = 8;  ///< A column of text is at least that wide.

size_t characters(std::string_view text) {
  return size_t(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

/// Cuts a text into lines of at most `width` characters; line breaks stay.
std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts = (text[i] & 0xC0) != 0x80;
    if (text[i] == '\n') {
      lines.emplace_back();
      count = 0;
      continue;
    }
    if (starts && count == width) {
      lines.emplace_back();
      count = 0;
    }
    lines.back() += text[i] == '\t' ? ' ' : text[i];
    count += starts ? 1 : 0;
  }
  return lines;
}

std::string repeated(const char* piece, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += piece;
  return all;
}

/// Objects with their keys in the order that a checkpoint has them in, so that a resumed run writes
/// the same files.
Value with_sorted_keys(const Value& value) {
  return value.is_nested() ? Value::nested(nlohmann::json(value.json())) : value;
}

/// How a cell is shown: numbers with two digits, conversations message by message.
std::string shown_cell(const Value& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return printable(value.str());
  if (value.is_double()) return fmt::format("{:.2f}", value.number());
  if (value.is_int()) return std::to_string(value.integer());
  const auto json = sources::json_from_value(value);
  if (!json.is_array()) return printable(json.dump());
  std::string text;
  for (const auto& message : json) {
    if (!message.is_object() || !message.contains("role")) return printable(json.dump());
    auto role = message["role"].is_string() ? message["role"].get<std::string>() : "";
    std::ranges::transform(role, role.begin(), [](unsigned char c) { return std::toupper(c); });
    text += (text.empty() ? "" : "\n\n") + role + "\n";
    if (message.contains("content") && message["content"].is_string())
      text += message["content"].get<std::string>();
  }
  return printable(text);
}

std::string heading(const std::string& name) {
  if (name == "prompt") return "Prompt";
  if (name == "completion") return "Completion";
  return name == "advantage" ? "Advantage" : printable(name);
}

/// The widths of the columns: as wide as they need, the widest ones narrower if they must be.
std::vector<size_t> column_widths(const std::vector<std::vector<std::string>>& rows, size_t width) {
  std::vector<size_t> widths(rows.front().size(), 1);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      for (const auto& line : wrapped(row[i], std::string::npos))
        widths[i] = std::max(widths[i], characters(line));
  const auto total = [&] {
    size_t sum = 1;
    for (const auto each : widths) sum += each + 3;
    return sum;
  };
  while (total() > width) {
    auto& widest = *std::ranges::max_element(widths);
    if (widest <= kNarrowest) break;
    --widest;
  }
  return widths;
}

}  // namespace

std::string framed_table(const std::string& title,
                         const std::vector<std::vector<std::string>>& rows, size_t width) {
  const auto widths = column_widths(rows, width);
  const auto rule = [&](const char* left, const char* line, const char* cross, const char* right) {
    std::string text = left;
    for (size_t i = 0; i < widths.size(); ++i)
      text += (i > 0 ? cross : "") + repeated(line, widths[i] + 2);
    return text + right + "\n";
  };
  std::string text = title + "\n" + rule("┏", "━", "┳", "┓");
  for (size_t r = 0; r < rows.size(); ++r) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 0;
    for (size_t i = 0; i < rows[r].size(); ++i) {
      cells.push_back(wrapped(rows[r][i], widths[i]));
      height = std::max(height, cells.back().size());
    }
    const std::string bar = r == 0 ? "┃" : "│";
    for (size_t line = 0; line < height; ++line) {
      text += bar;
      for (size_t i = 0; i < cells.size(); ++i) {
        const auto piece = line < cells[i].size() ? cells[i][line] : std::string();
        text += " " + piece + std::string(widths[i] - characters(piece) + 1, ' ') + bar;
      }
      text += "\n";
    }
    if (r == 0)
      text += rule("┡", "━", "╇", "┩");
    else if (r + 1 < rows.size())
      text += rule("├", "─", "┼", "┤");
  }
  return text + rule("└", "─", "┴", "┘");
}

void CompletionsLog::add(const std::vector<std::pair<std::string, std::vector<Value>>>& cells) {
  const auto count = cells.empty() ? 0 : cells.front().second.size();
  for (size_t i = 0; i < count; ++i) {
    Example row;
    for (const auto& [name, values] : cells)
      row.set(name, i < values.size() ? with_sorted_keys(values[i]) : Value());
    rows_.push_back(std::move(row));
    if (rows_.size() > most_) rows_.pop_front();
  }
}

void CompletionsLog::add(const CompletionsLog& others) {
  for (const auto& row : others.rows_) {
    rows_.push_back(row);
    if (rows_.size() > most_) rows_.pop_front();
  }
}

void CompletionsLog::save(const std::filesystem::path& folder, int64_t step) const {
  std::vector<Example> rows;
  for (const auto& row : rows_) {
    Example with_step;
    with_step.set("step", step);
    for (const auto& [name, value] : row) with_step.set(name, value);
    rows.push_back(std::move(with_step));
  }
  if (rows.empty()) return;
  make_directory(folder);
  sources::write_parquet(folder / fmt::format("completions_{:05}.parquet", step), rows);
}

void CompletionsLog::print(int64_t step, std::optional<int64_t> limit, bool unique_prompts) const {
  if (rows_.empty() || (limit && *limit <= 0)) return;
  std::vector<std::vector<std::string>> table(1);
  for (const auto& name : rows_.front().names()) table[0].push_back(heading(name));
  std::set<std::string> seen;
  for (const auto& row : rows_) {
    if (limit && int64_t(table.size()) > *limit) break;
    std::vector<std::string> cells;
    for (const auto& [name, value] : row) cells.push_back(shown_cell(value));
    if (unique_prompts && !seen.insert(cells.front()).second) continue;
    table.push_back(std::move(cells));
  }
  const auto columns = log_sink() ? log_sink()->columns() : std::nullopt;
  log_print(framed_table(fmt::format("Step {}", step), table,
                         columns ? size_t(*columns) : kDefaultWidth));
}

nlohmann::json CompletionsLog::state() const {
  auto rows = nlohmann::json::array();
  for (const auto& row : rows_) {
    auto cells = nlohmann::json::array();
    for (const auto& [name, value] : row) cells.push_back({name, sources::json_from_value(value)});
    rows.push_back(std::move(cells));
  }
  return rows;
}

void CompletionsLog::load(const nlohmann::json& state) {
  rows_.clear();
  for (const auto& cells : state) {
    Example row;
    for (const auto& cell : cells) row.set(cell.at(0), sources::value_from_json(cell.at(1)));
    rows_.push_back(std::move(row));
  }
}

}  // namespace gradus
