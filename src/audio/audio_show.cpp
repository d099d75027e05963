#include <fmt/format.h>
#include <gradus/audio/audio_show.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/printable.h>

#include <map>
#include <nlohmann/json.hpp>

#include "audio/sound_file.h"
#include "core/html.h"
#include "core/list_folder.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr double kHeardSeconds = 30;   // of a clip, on the page
constexpr size_t kShownLetters = 200;  // of a cell

/// The bytes of a cell as the `datasets` package stores sound, or of a column of plain binary;
/// null for other cells.
const std::string* bytes_of(const Value& cell) {
  if (cell.is_string()) return is_file_content(cell.str()) ? &cell.str() : nullptr;
  if (!cell.is_nested() || !cell.json().is_object()) return nullptr;
  const auto bytes = cell.json().find("bytes");
  return bytes != cell.json().end() && bytes->is_string() ? &bytes->get_ref<const std::string&>()
                                                          : nullptr;
}

/// The path in a cell; empty when there is none.
std::string path_of(const Value& cell) {
  if (cell.is_string()) return is_file_content(cell.str()) ? "" : cell.str();
  if (!cell.is_nested() || !cell.json().is_object()) return "";
  const auto path = cell.json().find("path");
  return path != cell.json().end() && path->is_string() ? path->get<std::string>() : "";
}

AudioInfo info_of_cell(const Value& cell, const fs::path& folder) {
  const auto path = path_of(cell);
  if (const auto* bytes = bytes_of(cell)) return audio_info(*bytes, path.empty() ? "audio" : path);
  if (!path.empty()) return audio_info(read_file(folder / path), path);
  const auto clip = audio_of(cell, folder);  // decoded samples, or an error
  return {"samples", clip.sampling_rate, 1, clip.samples.numel()};
}

std::string shortened_cell(const Value& cell) {
  auto text = cell.is_string()   ? (is_file_content(cell.str()) ? "bytes" : cell.str())
              : cell.is_int()    ? std::to_string(cell.integer())
              : cell.is_double() ? fmt::format("{}", cell.number())
                                 : std::string();
  if (text.size() <= kShownLetters) return text;
  auto end = kShownLetters;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // UTF-8
  return text.substr(0, end) + "…";
}

OrderedJson describe_clip(const Dataset& rows, int64_t row, const AudioShowOptions& options) {
  const auto example = rows.get(row);
  const auto& cell = example.at(options.audio_column);
  OrderedJson line = {{"row", row}, {"name", path_of(cell)}};
  try {
    const auto info = info_of_cell(cell, options.folder);
    line["format"] = info.format;
    line["sampling_rate"] = info.sampling_rate;
    line["channels"] = info.channels;
    line["seconds"] = info.seconds();
  } catch (const Error& error) {
    line["error"] = error.message();
  }
  return line;
}

/// With what only decoding shows, and the other columns.
OrderedJson describe_first_clip(const Dataset& rows, int64_t row, const AudioShowOptions& options) {
  auto line = describe_clip(rows, row, options);
  const auto example = rows.get(row);
  if (!line.contains("error")) try {
      const auto samples = audio_of(example.at(options.audio_column), options.folder).samples;
      line["peak"] = samples.numel() == 0 ? 0.0 : samples.abs().max().item<double>();
    } catch (const Error& error) {
      line["error"] = error.message();
    }
  line["columns"] = OrderedJson::object();
  for (const auto& [name, cell] : example)
    if (name != options.audio_column)
      if (const auto text = shortened_cell(cell); !text.empty()) line["columns"][name] = text;
  return line;
}

std::string properties(const OrderedJson& line) {
  if (line.contains("error")) return line["error"].get<std::string>();
  const auto channels = line["channels"].get<int64_t>();
  const auto peak = line["peak"].get<double>();
  return fmt::format("{:.2f} s  {} Hz {} {}, {}", line["seconds"].get<double>(),
                     line["sampling_rate"].get<int64_t>(),
                     channels == 1   ? "mono"
                     : channels == 2 ? "stereo"
                                     : fmt::format("{} channels", channels),
                     line["format"].get<std::string>(),
                     peak == 0 ? "silent" : fmt::format("peak {:.3f}", peak));
}

std::string counted(const OrderedJson& counts, const char* unit) {
  std::string out;
  for (const auto& [name, count] : counts.items())
    out += fmt::format("  {:<32} {:>8}\n", name + unit, count.get<int64_t>());
  return out;
}

}  // namespace

std::string encode_wav(const AudioClip& clip) {
  const auto samples = (clip.samples.to(torch::kFloat) * 32767)
                           .round()
                           .clamp(-32768, 32767)
                           .to(torch::kShort)
                           .contiguous();
  const auto bytes = static_cast<uint32_t>(samples.numel() * 2);
  const auto rate = static_cast<uint32_t>(clip.sampling_rate);
  std::string file;
  const auto number = [&](uint32_t value, int size) {
    for (int i = 0; i < size; ++i) file += static_cast<char>(value >> 8 * i & 255);
  };
  file += "RIFF";
  number(36 + bytes, 4);
  file += "WAVEfmt ";
  number(16, 4);
  number(1, 2);  // whole numbers
  number(1, 2);  // one channel
  number(rate, 4);
  number(2 * rate, 4);
  number(2, 2);
  number(16, 2);
  file += "data";
  number(bytes, 4);
  const auto* values = samples.const_data_ptr<int16_t>();
  for (int64_t i = 0; i < samples.numel(); ++i) number(static_cast<uint16_t>(values[i]), 2);
  return file;
}

bool is_audio_folder(const fs::path& folder) {
  static constexpr std::string_view kData[] = {".parquet", ".arrow", ".csv", ".tsv",
                                               ".json",    ".jsonl", ".bin"};
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return false;
  for (const auto& path : list_folder(folder))
    if (path.stem() != "metadata" &&
        std::find(std::begin(kData), std::end(kData), path.extension().string()) != std::end(kData))
      return false;
  for (fs::recursive_directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored))
    if (is_sound_file(entry->path())) return true;
  return false;
}

std::string audio_column_of(const Example& row) {
  for (const auto& [name, cell] : row) {
    const auto* bytes = bytes_of(cell);
    if (cell.is_nested() && cell.json().is_object() && cell.json().contains("array") &&
        cell.json().contains("sampling_rate"))
      return name;
    if (bytes == nullptr && !path_of(cell).empty() && is_sound_file(path_of(cell))) return name;
    if (bytes != nullptr) try {
        audio_info(*bytes, name);
        return name;
      } catch (const Error&) {
      }
  }
  return "";
}

OrderedJson audio_show(const Dataset& rows, const AudioShowOptions& options) {
  const auto count = rows.size();
  const auto sampled = options.sample > 0 ? std::min(options.sample, count) : count;
  std::map<std::string, int64_t> formats;
  std::map<int64_t, int64_t> rates, channels;
  double total = 0, least = 0, most = 0;
  int64_t unreadable = 0;
  for (int64_t i = 0; i < sampled; ++i) {
    const auto row = int64_t(double(i) * double(count) / double(sampled));
    const auto line = describe_clip(rows, row, options);
    if (line.contains("error")) {
      ++unreadable;
      continue;
    }
    const auto seconds = line["seconds"].get<double>();
    least = formats.empty() ? seconds : std::min(least, seconds);
    most = std::max(most, seconds);
    total += seconds;
    ++formats[line["format"].get<std::string>()];
    ++rates[line["sampling_rate"].get<int64_t>()];
    ++channels[line["channels"].get<int64_t>()];
  }
  OrderedJson report = {{"rows", count}, {"sampled_rows", sampled}, {"unreadable", unreadable}};
  report["formats"] = formats;
  for (const auto* key : {"sampling_rates", "channels"}) {
    report[key] = OrderedJson::object();
    for (const auto& [number, times] : key[0] == 's' ? rates : channels)
      report[key][std::to_string(number)] = times;
  }
  if (const auto readable = sampled - unreadable; readable > 0)
    report["seconds"] = {
        {"min", least}, {"mean", total / double(readable)}, {"max", most}, {"total", total}};
  report["first_rows"] = OrderedJson::array();
  for (int64_t i = 0; i < std::min(options.rows, count); ++i)
    report["first_rows"].push_back(describe_first_clip(rows, i, options));
  return report;
}

std::string format_audio_show(const OrderedJson& report) {
  auto out = fmt::format("{} clips", report["rows"].get<int64_t>());
  if (report["sampled_rows"] != report["rows"])
    out += fmt::format(" (numbers below from {} of them)", report["sampled_rows"].get<int64_t>());
  if (report["unreadable"].get<int64_t>() > 0)
    out += fmt::format(", {} cannot be read", report["unreadable"].get<int64_t>());
  out += "\n\nformats\n" + counted(report["formats"], "") +
         counted(report["sampling_rates"], " Hz") + counted(report["channels"], " channels");
  if (report.contains("seconds"))
    out += fmt::format(
        "  seconds: min {:.2f}, mean {:.2f}, max {:.2f}, total {:.1f}\n",
        report["seconds"]["min"].get<double>(), report["seconds"]["mean"].get<double>(),
        report["seconds"]["max"].get<double>(), report["seconds"]["total"].get<double>());
  out += "\n";
  for (const auto& line : report["first_rows"]) {
    out += fmt::format("row {:<6} {}  {}", line["row"].get<int64_t>(), properties(line),
                       printable(line["name"].get<std::string>()));
    for (const auto& [name, text] : line["columns"].items())
      out += fmt::format("  {}: {}", printable(name), printable(text.get<std::string>()));
    out += "\n";
  }
  return out;
}

std::string audio_show_html(const Dataset& rows, const OrderedJson& report,
                            const std::string& title, const AudioShowOptions& options) {
  auto out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font-family:sans-serif;margin:2em}}table{{border-collapse:collapse}}"
      "td{{padding:.3em .8em;border-bottom:1px solid #ccc;overflow-wrap:anywhere}}</style></head>\n"
      "<body><h1>{0}</h1>\n<p>{1} clips</p>\n<table>\n",
      escaped_html(title), report["rows"].get<int64_t>());
  for (const auto& line : report["first_rows"]) {
    std::string player;
    try {
      const auto row = rows.get(line["row"].get<int64_t>());
      auto clip = audio_of(row.at(options.audio_column), options.folder);
      const auto heard = int64_t(kHeardSeconds * double(clip.sampling_rate));
      clip.samples = clip.samples.narrow(0, 0, std::min(clip.samples.numel(), heard));
      player =
          "<audio controls src=\"data:audio/wav;base64," + base64(encode_wav(clip)) + "\"></audio>";
    } catch (const Error& error) {
      player = escaped_html(error.message());
    }
    std::string texts;
    for (const auto& [name, text] : line["columns"].items())
      texts += fmt::format("<b>{}</b> {}<br>", escaped_html(name),
                           escaped_html(text.get<std::string>()));
    out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}{}<br>{}</td></tr>\n",
                       line["row"].get<int64_t>(), player, texts, escaped_html(properties(line)),
                       escaped_html(line["name"].get<std::string>()));
  }
  return out + "</table></body></html>\n";
}

}  // namespace gradus
