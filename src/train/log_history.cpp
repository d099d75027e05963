#include <gradus/core/json.h>
#include <gradus/train/log_history.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace gradus {
namespace {

constexpr size_t kBlockBytes = size_t{256} << 10;
// Between two entries of the file; the first one follows a line break alone.
constexpr std::string_view kBetweenEntries = ",\n    ";

// The entry as the file has it, at the depth of an element of log_history.
std::string entry_text(const nlohmann::json& entry) {
  std::string text;
  for (const char c : dump_json(entry, 2)) {
    text += c;
    if (c == '\n') text += "    ";
  }
  return text;
}

}  // namespace

LogHistory::LogHistory(std::initializer_list<nlohmann::json> entries) {
  for (const auto& entry : entries) push_back(entry);
}

size_t LogHistory::size() const { return in_full_ + open_.begins.size() + (newest_ ? 1 : 0); }

void LogHistory::push_back(nlohmann::json entry) {
  if (newest_) keep(*newest_);
  newest_ = std::move(entry);
}

// Turns an entry that no longer changes into text.
void LogHistory::keep(const nlohmann::json& entry) {
  const bool is_first = in_full_ == 0 && open_.begins.empty();
  open_.text += is_first ? kBetweenEntries.substr(1) : kBetweenEntries;
  open_.begins.push_back(uint32_t(open_.text.size()));
  open_.text += entry_text(entry);
  if (open_.text.size() < kBlockBytes) return;
  open_.text.shrink_to_fit();
  open_.begins.shrink_to_fit();
  first_.push_back(in_full_);
  in_full_ += open_.begins.size();
  full_.push_back(std::make_shared<const Block>(std::exchange(open_, {})));
}

const nlohmann::json LogHistory::operator[](size_t index) const {
  if (index + 1 == size()) return *newest_;
  const Block* block = &open_;
  size_t first = in_full_;
  if (index < in_full_) {
    const auto after = std::upper_bound(first_.begin(), first_.end(), index);
    const auto number = size_t(after - first_.begin()) - 1;
    block = full_[number].get();
    first = first_[number];
  }
  const auto place = index - first;
  const size_t begin = block->begins[place];
  const size_t end = place + 1 < block->begins.size()
                         ? block->begins[place + 1] - kBetweenEntries.size()
                         : block->text.size();
  return parse_json(std::string_view(block->text).substr(begin, end - begin), "log_history");
}

const nlohmann::json LogHistory::at(size_t index) const {
  if (index >= size())
    throw std::out_of_range("log_history has " + std::to_string(size()) + " entries, not entry " +
                            std::to_string(index));
  return (*this)[index];
}

LogHistory::const_iterator LogHistory::begin() const { return {this, 0}; }
LogHistory::const_iterator LogHistory::end() const { return {this, size()}; }
LogHistory::const_reverse_iterator LogHistory::rbegin() const {
  return const_reverse_iterator(end());
}
LogHistory::const_reverse_iterator LogHistory::rend() const {
  return const_reverse_iterator(begin());
}

LogHistory::operator std::vector<nlohmann::json>() const {
  std::vector<nlohmann::json> entries;
  entries.reserve(size());
  for (size_t i = 0; i < size(); ++i) entries.push_back((*this)[i]);
  return entries;
}

bool LogHistory::operator==(const LogHistory& other) const {
  return size() == other.size() && std::equal(begin(), end(), other.begin());
}

std::vector<std::shared_ptr<const std::string>> LogHistory::text_pieces() const {
  std::vector<std::shared_ptr<const std::string>> pieces;
  if (!newest_) return pieces;
  pieces.reserve(full_.size() + 1);
  for (const auto& block : full_) pieces.emplace_back(block, &block->text);
  auto rest = open_.text;
  rest += size() == 1 ? kBetweenEntries.substr(1) : kBetweenEntries;
  pieces.push_back(std::make_shared<const std::string>(rest + entry_text(*newest_) + "\n  "));
  return pieces;
}

void to_json(nlohmann::json& json, const LogHistory& history) {
  json = nlohmann::json::array();
  for (size_t i = 0; i < history.size(); ++i) json.push_back(history[i]);
}

void from_json(const nlohmann::json& json, LogHistory& history) {
  history.clear();
  for (const auto& entry : json.get_ref<const nlohmann::json::array_t&>()) history.push_back(entry);
}

}  // namespace gradus
