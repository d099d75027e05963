// What data_sources_test.py and benchmarks/data_rows.py ask of our side:
//   sources_tool rows|stream OPTIONS_JSON FILE...   every row as a line of JSON (stream: stopped
//   and resumed after every 5th) sources_tool show FILE                          the report of
//   data_show
// OPTIONS_JSON: {"columns": [...], "field": "...", "split": "...", "text_unit": "...",
// "keep_linebreaks": bool, "block_size": n}
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/data/sources.h>

#include <iostream>

#include "data/sources/column_kind.h"

namespace {

gradus::LoadOptions options_from(const nlohmann::json& given) {
  gradus::LoadOptions options;
  options.columns = given.value("columns", std::vector<std::string>());
  options.split = given.value("split", "");
  options.block_size = given.value("block_size", 1024);
  options.keep_linebreaks = given.value("keep_linebreaks", false);
  if (given.contains("field")) options.field = given["field"].get<std::string>();
  const auto unit = given.value("text_unit", "line");
  options.text_unit = unit == "line"        ? gradus::TextUnit::line
                      : unit == "paragraph" ? gradus::TextUnit::paragraph
                                            : gradus::TextUnit::document;
  return options;
}

void print(const gradus::Example& row) {
  auto object = nlohmann::ordered_json::object();
  for (const auto& [name, value] : row) object[name] = gradus::sources::json_from_value(value);
  std::cout << gradus::dump_json(object) << '\n';
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "show" && argc == 3) {
    std::cout << gradus::dump_json(gradus::data_show(argv[2])) << '\n';
    return 0;
  }
  if (argc < 4 || (mode != "rows" && mode != "stream")) return 2;
  const auto options = options_from(gradus::parse_json(argv[2]));
  const std::vector<std::string> files(argv + 3, argv + argc);
  if (mode == "rows") {
    const auto dataset = gradus::load_dataset(files, options);
    for (int64_t i = 0; i < dataset->size(); ++i) print(dataset->get(i));
    return 0;
  }
  auto stream = gradus::stream_dataset(files, options);
  int64_t count = 0;
  while (const auto row = stream->next()) {
    print(*row);
    if (++count % 5 != 0) continue;
    const auto state = gradus::parse_json(gradus::dump_json(stream->save_state()));
    stream = gradus::stream_dataset(files, options);
    stream->load_state(state);
  }
  return 0;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
