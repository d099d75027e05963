#include "data/sources/json_row.h"

#include <gradus/core/error.h>

#include <limits>

#include "core/ordered_members.h"
#include "core/parsed_json.h"
#include "data/sources/column_kind.h"

namespace gradus::sources {
namespace {

using Json = nlohmann::ordered_json;  // of trees

constexpr int64_t kDeepest = 256;  // trees are walked by recursion elsewhere

// Receives the parser's events and puts a row together. Values of the row's keys are scalars, flat
// lists, or trees.
class RowHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit RowHandler(const std::vector<std::string>& wanted) : wanted_(wanted) {}

  Example row;
  std::string reason;
  size_t position = 0;

  bool null() override { return scalar(Json(nullptr), Value()); }
  bool boolean(bool value) override { return scalar(Json(value), Value(value)); }
  bool number_integer(int64_t value) override { return integer(value); }
  bool number_unsigned(uint64_t value) override {
    if (value <= uint64_t(std::numeric_limits<int64_t>::max())) return integer(int64_t(value));
    return number(double(value));
  }
  bool number_float(double value, const std::string&) override { return number(value); }
  bool string(std::string& value) override {
    if (depth_ == 0) {  // a row of an array of strings
      row.set("text", Value(std::move(value)));
      return true;
    }
    if (mode_ == Mode::texts || (mode_ == Mode::integers && integers_.empty())) {
      mode_ = Mode::texts;
      texts_.push_back(std::move(value));
      return true;
    }
    if (mode_ == Mode::key) return finish(Value(std::move(value)));
    return add(Json(std::move(value)));
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override {
    if (depth_++ == 0) return true;
    return open(Json::object());
  }
  bool start_array(size_t) override {
    if (depth_ == 0) return fail("expected an object, found a list");
    ++depth_;
    if (mode_ == Mode::key) {
      mode_ = Mode::integers;
      return true;
    }
    return open(Json::array());
  }
  bool end_object() override { return --depth_ == 0 || close(); }
  bool end_array() override {
    --depth_;
    switch (mode_) {
      case Mode::integers: return finish(Value(std::exchange(integers_, {})));
      case Mode::numbers: return finish(Value(std::exchange(numbers_, {})));
      case Mode::texts: return finish(Value(std::exchange(texts_, {})));
      default: return close();
    }
  }
  bool key(std::string& name) override {
    if (depth_ > 1) {
      stack_.back().key = std::move(name);
      return true;
    }
    column_ = std::move(name);
    skip_ = !wanted_.empty() && std::find(wanted_.begin(), wanted_.end(), column_) == wanted_.end();
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception& error) override {
    position = at;
    reason = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error …"
    // becomes "syntax error …".
    if (const auto column = reason.find("column "); column != std::string::npos)
      if (const auto colon = reason.find(": ", column); colon != std::string::npos)
        reason.erase(0, colon + 2);
    return false;
  }

 private:
  enum class Mode { key, integers, numbers, texts, tree };
  struct OpenValue {
    Json value;
    std::string key;  // of the next member
    OrderedMembers members;
  };

  bool fail(std::string why) {
    reason = std::move(why);
    return false;
  }
  bool finish(Value value) {
    if (!skip_) row.set(std::move(column_), std::move(value));
    mode_ = Mode::key;
    return true;
  }
  bool scalar(Json json, Value value) {
    if (depth_ == 0) return fail("expected an object");
    if (mode_ == Mode::key) return finish(std::move(value));
    return add(std::move(json));
  }
  bool integer(int64_t value) {
    if (mode_ == Mode::integers)
      integers_.push_back(value);
    else if (mode_ == Mode::numbers)
      numbers_.push_back(double(value));
    else
      return scalar(Json(value), Value(value));
    return true;
  }
  bool number(double value) {
    if (mode_ == Mode::integers) {
      numbers_.assign(integers_.begin(), integers_.end());
      integers_.clear();
      mode_ = Mode::numbers;
    }
    if (mode_ != Mode::numbers) return scalar(Json(value), Value(value));
    numbers_.push_back(value);
    return true;
  }

  // From a flat list to a tree that begins with what the list held.
  void leave_list() {
    if (mode_ == Mode::integers)
      stack_.push_back({Json(std::exchange(integers_, {})), {}, {}});
    else if (mode_ == Mode::numbers)
      stack_.push_back({Json(std::exchange(numbers_, {})), {}, {}});
    else if (mode_ == Mode::texts)
      stack_.push_back({Json(std::exchange(texts_, {})), {}, {}});
    else
      return;
    mode_ = Mode::tree;
  }
  bool add(Json value) {
    leave_list();
    auto& parent = stack_.back();
    if (parent.value.is_array())
      parent.value.push_back(std::move(value));
    else
      parent.members.set(parent.value, std::move(parent.key), std::move(value));
    return true;
  }
  bool open(Json empty) {
    if (depth_ > kDeepest) return fail("nested too deeply");
    leave_list();
    mode_ = Mode::tree;
    stack_.push_back({std::move(empty), {}, {}});
    return true;
  }
  bool close() {
    auto done = std::move(stack_.back().value);
    stack_.pop_back();
    if (!stack_.empty()) return add(std::move(done));
    return finish(value_from_json(std::move(done)));
  }

  const std::vector<std::string>& wanted_;
  Mode mode_ = Mode::key;
  int64_t depth_ = 0;
  bool skip_ = false;
  std::string column_;
  Value::Ints integers_;
  Value::Floats numbers_;
  Value::Strings texts_;
  std::vector<OpenValue> stack_;
};

bool may_hold_special_number(std::string_view text) {
  return text.find("NaN") != std::string_view::npos ||
         text.find("Infinity") != std::string_view::npos;
}

// The slow way, for rows with bare NaN or Infinity.
std::optional<Example> parse_special(std::string_view text,
                                     const std::vector<std::string>& wanted) try {
  auto tree = parse_ordered_json(text);
  if (!tree.is_object()) return std::nullopt;
  Example row;
  for (auto& [name, value] : tree.items())
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end())
      row.set(name, value_from_json(std::move(value)));
  return row;
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace

Example parse_json_row(std::string_view text, const std::vector<std::string>& wanted) {
  RowHandler handler(wanted);
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) return std::move(handler.row);
  if (may_hold_special_number(text))
    if (auto row = parse_special(text, wanted)) return std::move(*row);
  throw NotARow(handler.reason, handler.position);
}

}  // namespace gradus::sources
