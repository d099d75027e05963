#pragma once

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gradus {

/// The log of a run: one JSON object per entry, oldest first.
///
/// It is read like a `std::vector<nlohmann::json>` and converts to one. Entries are kept as the
/// text that trainer_state.json has for them, about 150 bytes each, and are parsed when they are
/// read. The newest is a JSON value that may still be changed. Full blocks of text never change
/// and are shared by copies: a copy of a million entries takes microseconds, and so a save costs
/// the same however long the log is.
///
/// Thread-safety: none; copies may be used by other threads.
class LogHistory {
 public:
  /// Reads entries in order. Entries are values: `const auto& entry : history` reads each once.
  class const_iterator;

  using value_type = nlohmann::json;             ///< An entry.
  using size_type = size_t;                      ///< Counts entries.
  using difference_type = std::ptrdiff_t;        ///< Between two iterators.
  using reference = const nlohmann::json;        ///< What reading gives: a value.
  using const_reference = const nlohmann::json;  ///< What reading gives: a value.
  using iterator = const_iterator;               ///< Only the newest entry can be changed.
  using const_reverse_iterator = std::reverse_iterator<const_iterator>;  ///< Newest first.
  using reverse_iterator = const_reverse_iterator;                       ///< Newest first.

  /// An empty log.
  LogHistory() = default;
  /// A log of these entries.
  LogHistory(std::initializer_list<nlohmann::json> entries);

  /// Number of entries.
  size_t size() const;
  /// Whether there is none.
  bool empty() const { return !newest_; }
  /// Adds an entry, which is then the newest.
  void push_back(nlohmann::json entry);
  /// Removes all entries.
  void clear() { *this = LogHistory(); }

  /// Entry `index`, which must exist.
  const nlohmann::json operator[](size_t index) const;
  /// Entry `index`. Throws `std::out_of_range` when there is none.
  const nlohmann::json at(size_t index) const;
  /// The oldest entry; there must be one.
  const nlohmann::json front() const { return (*this)[0]; }
  /// The newest entry, which may be changed until another is added; there must be one.
  nlohmann::json& back() { return *newest_; }
  /// The newest entry; there must be one.
  const nlohmann::json& back() const { return *newest_; }

  const_iterator begin() const;           ///< The oldest entry.
  const_iterator end() const;             ///< Behind the newest entry.
  const_reverse_iterator rbegin() const;  ///< The newest entry.
  const_reverse_iterator rend() const;    ///< Before the oldest entry.

  /// All entries, parsed.
  operator std::vector<nlohmann::json>() const;  // NOLINT: meant to convert
  /// Whether both have equal entries.
  bool operator==(const LogHistory& other) const;

  /// The entries as they are in trainer_state.json, between "[" and "]". Joined, the pieces are
  /// that text. They are shared, never changed.
  std::vector<std::shared_ptr<const std::string>> text_pieces() const;

  /// A JSON array of all entries.
  friend void to_json(nlohmann::json& json, const LogHistory& history);
  /// Reads a JSON array. Throws nlohmann's `type_error` for anything else.
  friend void from_json(const nlohmann::json& json, LogHistory& history);

 private:
  struct Block {
    std::string text;
    std::vector<uint32_t> begins;  // where the entries begin in `text`
  };

  void keep(const nlohmann::json& entry);

  std::vector<std::shared_ptr<const Block>> full_;
  std::vector<size_t> first_;  // the number of the first entry of each full block
  size_t in_full_ = 0;         // entries in full blocks
  Block open_;
  std::optional<nlohmann::json> newest_;
};

/// Reads the entries of a `LogHistory` in any order. It is valid until the log changes.
class LogHistory::const_iterator {
 public:
  using iterator_category = std::random_access_iterator_tag;  ///< It can jump.
  using value_type = nlohmann::json;                          ///< An entry.
  using difference_type = std::ptrdiff_t;                     ///< Between two iterators.
  using reference = const nlohmann::json;                     ///< Reading gives a value.
  /// Holds the value for `->`.
  struct pointer {
    nlohmann::json value;                                        ///< The entry.
    const nlohmann::json* operator->() const { return &value; }  ///< The entry.
  };

  /// Belongs to no log.
  const_iterator() = default;
  /// Entry `index` of `history`.
  const_iterator(const LogHistory* history, size_t index) : history_(history), index_(index) {}

  /// The entry.
  reference operator*() const { return (*history_)[index_]; }
  /// Its members.
  pointer operator->() const { return {(*history_)[index_]}; }
  /// The entry `n` further on.
  reference operator[](difference_type n) const { return *(*this + n); }
  /// Goes `n` on.
  const_iterator& operator+=(difference_type n) { return index_ += size_t(n), *this; }
  /// Goes `n` back.
  const_iterator& operator-=(difference_type n) { return *this += -n; }
  /// Goes on.
  const_iterator& operator++() { return *this += 1; }
  /// Goes back.
  const_iterator& operator--() { return *this += -1; }
  /// Goes on.
  const_iterator operator++(int) { return std::exchange(*this, *this + 1); }
  /// Goes back.
  const_iterator operator--(int) { return std::exchange(*this, *this - 1); }
  /// `n` further on.
  const_iterator operator+(difference_type n) const { return const_iterator(*this) += n; }
  /// `n` before.
  const_iterator operator-(difference_type n) const { return const_iterator(*this) -= n; }
  /// Entries between two.
  difference_type operator-(const const_iterator& other) const {
    return difference_type(index_) - difference_type(other.index_);
  }
  /// Whether both are at the same entry.
  bool operator==(const const_iterator& other) const { return index_ == other.index_; }
  /// Which one comes first.
  auto operator<=>(const const_iterator& other) const { return index_ <=> other.index_; }

 private:
  const LogHistory* history_ = nullptr;
  size_t index_ = 0;
};

}  // namespace gradus
