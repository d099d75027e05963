#include "core/parsed_json.h"

#include <vector>

#include "core/ordered_members.h"

namespace gradus {
namespace {

using nlohmann::ordered_json;

/// Receives the parser's events and puts a document together whose objects keep their order.
class OrderedDocument {
 public:
  ordered_json document;

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(ordered_json::binary_t& value) { return add(std::move(value)); }
  bool start_object(size_t) { return open(ordered_json::object()); }
  bool start_array(size_t) { return open(ordered_json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    open_.back().key = std::move(name);
    return true;
  }
  template <class Exception>
  bool parse_error(size_t, const std::string&, const Exception& error) {
    throw error;
  }

 private:
  struct Open {
    ordered_json value;
    std::string key;
    OrderedMembers members;
  };

  bool add(ordered_json value) {
    if (open_.empty()) {
      document = std::move(value);
    } else if (auto& parent = open_.back(); parent.value.is_array()) {
      parent.value.push_back(std::move(value));
    } else {
      parent.members.set(parent.value, std::move(parent.key), std::move(value));
    }
    return true;
  }
  bool open(ordered_json empty) {
    open_.push_back({std::move(empty), {}, {}});
    return true;
  }
  bool close() {
    auto value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }

  std::vector<Open> open_;
};

}  // namespace

nlohmann::json strict_json(std::string_view text) { return nlohmann::json::parse(text); }

nlohmann::json json_or_discarded(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

nlohmann::ordered_json strict_ordered_json(std::string_view text) {
  OrderedDocument events;
  ordered_json::sax_parse(text, &events);
  return std::move(events.document);
}

nlohmann::ordered_json ordered_json_or_discarded(std::string_view text) try {
  return strict_ordered_json(text);
} catch (const nlohmann::json::exception&) {
  return ordered_json(ordered_json::value_t::discarded);
}

}  // namespace gradus
