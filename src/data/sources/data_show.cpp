#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/data/data_show.h>
#include <gradus/data/token_file.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "data/sources/column_kind.h"
#include "data/sources/source_errors.h"
#include "data/sources/source_files.h"

namespace gradus {
namespace sources {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMostValues = 12;  // distinct values that are still counted one by one

// What was seen of a column.
struct ColumnStatistics {
  int64_t nulls = 0;
  std::vector<double> numbers;            // of numbers
  std::vector<int64_t> lengths;           // of texts (characters) and lists (elements)
  std::map<std::string, int64_t> values;  // while they are few
  bool many_values = false;

  void add(const Value& value, const ColumnInfo& column);
};

int64_t characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

void ColumnStatistics::add(const Value& value, const ColumnInfo& column) {
  const auto count_value = [&](const std::string& name) {
    if (!many_values) ++values[name];
    many_values = many_values || values.size() > std::max(kMostValues, column.class_names.size());
  };
  switch (kind_of(value)) {
    case ColumnKind::null: ++nulls; return;
    case ColumnKind::boolean: count_value(value.boolean() ? "true" : "false"); return;
    case ColumnKind::integer: {
      const auto number = value.integer();
      const bool named = number >= 0 && size_t(number) < column.class_names.size();
      numbers.push_back(double(number));
      count_value(named ? column.class_names[size_t(number)] : std::to_string(number));
      return;
    }
    case ColumnKind::number: numbers.push_back(value.number()); return;
    case ColumnKind::text:
      lengths.push_back(characters(value.str()));
      if (value.str().size() <= 40)
        count_value(value.str());
      else
        many_values = true;
      return;
    case ColumnKind::integers: lengths.push_back(int64_t(value.ints().size())); return;
    case ColumnKind::numbers: lengths.push_back(int64_t(value.floats().size())); return;
    case ColumnKind::texts: lengths.push_back(int64_t(value.strings().size())); return;
    case ColumnKind::nested:
      if (value.json().is_array()) lengths.push_back(int64_t(value.json().size()));
      return;
    default: return;
  }
}

// Eight bins of equal, round width.
OrderedJson histogram(const std::vector<int64_t>& lengths, int64_t least, int64_t most) {
  constexpr int64_t kBins = 8;
  int64_t width = 1;
  for (int64_t step = 1; (most - least) / width + 1 > kBins; ++step)
    width = int64_t(step % 3 == 1   ? 2
                    : step % 3 == 2 ? 5
                                    : 10) *
            int64_t(std::pow(10, (step - 1) / 3));
  const auto first = least / width * width;
  std::vector<int64_t> counts(size_t((most - first) / width + 1));
  for (const auto length : lengths) ++counts[size_t((length - first) / width)];
  auto bins = OrderedJson::array();
  for (size_t i = 0; i < counts.size(); ++i)
    bins.push_back({{"from", first + int64_t(i) * width},
                    {"to", first + int64_t(i + 1) * width - 1},
                    {"count", counts[i]}});
  return bins;
}

template <class T>
double mean(const std::vector<T>& values) {
  double sum = 0;
  for (const auto value : values) sum += double(value);
  return sum / double(values.size());
}

OrderedJson describe(const ColumnInfo& column, const ColumnStatistics& statistics) {
  OrderedJson report = {{"name", column.name},
                        {"type", kind_name(column.kind)},
                        {"stored_as", column.stored_as},
                        {"nulls", statistics.nulls}};
  if (!column.class_names.empty()) report["class_names"] = column.class_names;
  if (!statistics.numbers.empty()) {
    const auto [least, most] =
        std::minmax_element(statistics.numbers.begin(), statistics.numbers.end());
    if (column.kind == ColumnKind::integer) {
      report["min"] = int64_t(*least);
      report["mean"] = mean(statistics.numbers);
      report["max"] = int64_t(*most);
    } else {
      report["min"] = *least;
      report["mean"] = mean(statistics.numbers);
      report["max"] = *most;
    }
  }
  if (!statistics.lengths.empty()) {
    const auto [least, most] =
        std::minmax_element(statistics.lengths.begin(), statistics.lengths.end());
    report["lengths"] = {{"unit", column.kind == ColumnKind::text ? "characters" : "elements"},
                         {"min", *least},
                         {"mean", mean(statistics.lengths)},
                         {"max", *most},
                         {"histogram", histogram(statistics.lengths, *least, *most)}};
  }
  if (!statistics.many_values && !statistics.values.empty()) report["values"] = statistics.values;
  return report;
}

OrderedJson show_row(const Example& row, const DataShowOptions& options) {
  auto shown = OrderedJson::object();
  auto& cells = shown.get_ref<OrderedJson::object_t&>();  // appended to directly: operator[] would
                                                          // look at all names before
  for (const auto& [name, value] : row) {
    cells.emplace_back(name, json_from_value(value));
    if (options.decode && name == "input_ids" && value.is_ints())
      cells.emplace_back("input_ids (decoded)", options.decode(value.ints()));
  }
  return shown;
}

// One value on one line of at most `room` characters.
std::string shortened(const OrderedJson& value, size_t room) {
  auto text = value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  if (text.size() <= room) return text;
  auto cut = room - std::min<size_t>(room, 3);
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
  return text.substr(0, cut) + "…";
}

std::string number_text(const OrderedJson& number) {
  return number.is_number_float() ? fmt::format("{:.4g}", number.get<double>())
                                  : with_commas(number.get<int64_t>());
}

void format_column(std::string& out, const OrderedJson& column, size_t width) {
  out += fmt::format("  {:<24} {:<16} {}", column["name"].get<std::string>(),
                     column["type"].get<std::string>(), column["stored_as"].get<std::string>());
  if (column["nulls"].get<int64_t>() > 0)
    out += fmt::format(", {} null", with_commas(column["nulls"].get<int64_t>()));
  out += "\n";
  if (column.contains("min"))
    out += fmt::format("      min {}, mean {}, max {}\n", number_text(column["min"]),
                       number_text(column["mean"]), number_text(column["max"]));
  if (column.contains("values")) out += "      " + shortened(column["values"], width - 6) + "\n";
  if (!column.contains("lengths")) return;
  const auto& lengths = column["lengths"];
  out += fmt::format("      {}: min {}, mean {}, max {}\n", lengths["unit"].get<std::string>(),
                     number_text(lengths["min"]), number_text(lengths["mean"]),
                     number_text(lengths["max"]));
  int64_t most = 1;
  for (const auto& bin : lengths["histogram"]) most = std::max(most, bin["count"].get<int64_t>());
  for (const auto& bin : lengths["histogram"]) {
    const auto count = bin["count"].get<int64_t>();
    const auto bar = size_t(double(count) / double(most) * 40.0 + 0.5);
    std::string drawn;
    for (size_t i = 0; i < bar; ++i) drawn += "█";
    out += fmt::format("      {:>10}–{:<10} {:>10} {}\n", with_commas(bin["from"].get<int64_t>()),
                       with_commas(bin["to"].get<int64_t>()), with_commas(count), drawn);
  }
}

// A small token file is shown too, in shorter windows.
LoadOptions windows_that_fit(const DataFiles& files, LoadOptions options) {
  for (const auto& file : resolve_files(files, options))
    if (file.format == Format::tokens)
      options.block_size = std::clamp<int64_t>(int64_t(std::filesystem::file_size(file.path)) / 4,
                                               1, options.block_size);
  return options;
}

}  // namespace
}  // namespace sources

nlohmann::ordered_json data_show(const DataFiles& files, const DataShowOptions& options) {
  const auto dataset = load_dataset(files, sources::windows_that_fit(files, options.load));
  sources::OrderedJson report;
  report["files"] = sources::OrderedJson::array();
  for (const auto& path : resolve_data_files(files, options.load))
    report["files"].push_back(
        {{"path", path.string()}, {"bytes", int64_t(std::filesystem::file_size(path))}});
  const auto rows = dataset->size();
  const auto sampled = options.sample > 0 ? std::min(options.sample, rows) : rows;
  std::vector<sources::ColumnStatistics> statistics(dataset->columns().size());
  for (int64_t i = 0; i < sampled; ++i) {
    const auto row = dataset->get(int64_t(double(i) * double(rows) / double(sampled)));
    for (size_t c = 0; c < statistics.size(); ++c)
      if (const auto* value = row.find(dataset->columns()[c].name))
        statistics[c].add(*value, dataset->columns()[c]);
  }
  report["rows"] = rows;
  report["skipped_rows"] = dataset->skipped_rows();
  report["sampled_rows"] = sampled;
  report["columns"] = sources::OrderedJson::array();
  for (size_t c = 0; c < statistics.size(); ++c)
    report["columns"].push_back(sources::describe(dataset->columns()[c], statistics[c]));
  report["first_rows"] = sources::OrderedJson::array();
  for (int64_t i = 0; i < std::min(options.rows, rows); ++i)
    report["first_rows"].push_back(sources::show_row(dataset->get(i), options));
  return report;
}

std::string format_data_show(const nlohmann::ordered_json& report, int width) {
  std::string out;
  for (const auto& file : report["files"])
    out += fmt::format("{}  {} bytes\n", file["path"].get<std::string>(),
                       sources::with_commas(file["bytes"].get<int64_t>()));
  out += fmt::format("{} rows", sources::with_commas(report["rows"].get<int64_t>()));
  if (report["skipped_rows"].get<int64_t>() > 0)
    out += fmt::format(", {} left out as unreadable",
                       sources::with_commas(report["skipped_rows"].get<int64_t>()));
  if (report["sampled_rows"] != report["rows"])
    out += fmt::format(" (figures below from {} of them)",
                       sources::with_commas(report["sampled_rows"].get<int64_t>()));
  out += "\n\ncolumns\n";
  for (const auto& column : report["columns"]) sources::format_column(out, column, size_t(width));
  int64_t number = 0;
  for (const auto& row : report["first_rows"]) {
    out += fmt::format("\nrow {}\n", number++);
    for (const auto& [name, value] : row.items())
      out += fmt::format("  {:<24} {}\n", name,
                         sources::shortened(value, size_t(std::max(width - 27, 20))));
  }
  return out;
}

}  // namespace gradus
