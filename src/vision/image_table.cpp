#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/vision/image_dataset.h>

#include <algorithm>
#include <set>

namespace gradus {
namespace fs = std::filesystem;
namespace {

class TableImages final : public ImageSource {
 public:
  TableImages(std::shared_ptr<const Dataset> table, const std::vector<ColumnInfo>& columns,
              ImageTableOptions options)
      : table_(std::move(table)), options_(std::move(options)) {
    if (options_.label_column.empty()) {
      labels_.resize(static_cast<size_t>(table_->size()));
      return;
    }
    const auto& cells = options_.labels ? options_.labels : table_;
    std::vector<std::string> stored;
    for (const auto& column : columns)
      if (column.name == options_.label_column) stored = column.class_names;
    std::vector<Value> values;
    for (int64_t i = 0; i < cells->size(); ++i)
      values.push_back(cells->get(i).at(options_.label_column));
    if (options_.class_names.empty()) options_.class_names = stored;
    if (options_.class_names.empty()) options_.class_names = names_in(values);
    for (size_t i = 0; i < values.size(); ++i) labels_.push_back(number_of(values[i], int64_t(i)));
  }

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  int64_t label(int64_t index) const override { return labels_[static_cast<size_t>(index)]; }
  std::string name(int64_t index) const override {
    return fmt::format("{}, row {}", options_.where, index);
  }
  const std::vector<std::string>& class_names() const override { return options_.class_names; }

  EncodedImage image(int64_t index) const override {
    const auto row = table_->get(index);
    const auto& cell = row.at(options_.image_column);
    const auto where = name(index);
    if (cell.is_string()) return from_text(cell.str(), where);
    if (cell.is_nested() && cell.json().is_object()) {
      const auto& parts = cell.json();
      if (const auto bytes = parts.find("bytes"); bytes != parts.end() && bytes->is_string())
        return {bytes->get<std::string>(), where};
      if (const auto path = parts.find("path"); path != parts.end() && path->is_string())
        return from_path(path->get<std::string>(), where);
    }
    throw Error("G-IMG-5", ErrorKind::data,
                fmt::format("{}: column '{}' holds {}, expected an image: its bytes or a path",
                            where, options_.image_column, cell.type_name()),
                "Name the column with --image_column_name, or leave the row out "
                "(--skip_bad_rows).");
  }

 private:
  /// Bytes of a file, or a path. Both are text here, and only one begins like an image.
  EncodedImage from_text(const std::string& text, const std::string& where) const {
    using namespace std::string_view_literals;
    for (const auto begin : {"\x89PNG"sv, "\xff\xd8\xff"sv, "RIFF"sv})
      if (text.starts_with(begin)) return {text, where};
    return from_path(text, where);
  }
  EncodedImage from_path(const std::string& text, const std::string& where) const {
    const auto path = expand_user(text);
    const auto file = path.is_absolute() ? path : options_.folder / path;
    return {read_file(file), fmt::format("{} ({})", where, file.string())};
  }

  static std::string label_name(const Value& value) {
    return value.is_int() ? std::to_string(value.integer()) : value.str();
  }

  std::vector<std::string> names_in(const std::vector<Value>& values) const {
    std::set<int64_t> numbers;
    std::set<std::string> words;
    for (size_t i = 0; i < values.size(); ++i) {
      if (!values[i].is_int() && !values[i].is_string()) refuse_label(values[i], int64_t(i));
      if (values[i].is_int()) numbers.insert(values[i].integer());
      words.insert(label_name(values[i]));
    }
    if (numbers.size() != words.size()) return {words.begin(), words.end()};
    std::vector<std::string> names;  // by value, not as text: 2 comes before 10
    for (const auto number : numbers) names.push_back(std::to_string(number));
    return names;
  }

  [[noreturn]] void refuse_label(const Value& value, int64_t row) const {
    const auto expected = options_.class_names.empty()
                              ? std::string("a class: a text or a whole number")
                              : fmt::format("one of the {} classes", options_.class_names.size());
    throw Error(
        "G-IMG-5", ErrorKind::data,
        fmt::format(
            "{}: column '{}' holds {}, expected {}", name(row), options_.label_column,
            value.is_int() || value.is_string() ? "'" + label_name(value) + "'" : value.type_name(),
            expected),
        "Correct the row, or name the column with --label_column_name.");
  }

  int64_t number_of(const Value& value, int64_t row) const {
    const auto& names = options_.class_names;
    if (value.is_int() || value.is_string()) {
      const auto found = std::find(names.begin(), names.end(), label_name(value));
      if (found != names.end()) return found - names.begin();
      if (value.is_int() && value.integer() >= 0 && value.integer() < int64_t(names.size()))
        return value.integer();
    }
    refuse_label(value, row);
  }

  std::shared_ptr<const Dataset> table_;
  ImageTableOptions options_;
  std::vector<int64_t> labels_;
};

}  // namespace

std::shared_ptr<ImageSource> image_table(std::shared_ptr<const Dataset> table,
                                         const std::vector<ColumnInfo>& columns,
                                         ImageTableOptions options) {
  std::vector<ColumnNeed> needs = {{.name = options.image_column}};
  if (!options.label_column.empty()) needs.push_back({.name = options.label_column});
  require_columns(*table, needs, options.where);
  return std::make_shared<TableImages>(std::move(table), columns, std::move(options));
}

}  // namespace gradus
