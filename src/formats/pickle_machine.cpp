#include <gradus/core/error.h>

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "core/limit_factor.h"
#include "formats/pickle_reader.h"

namespace gradus {
namespace {

using Kind = PickleValue::Kind;
constexpr int kDeepestPickled = 100;
constexpr size_t kSlot = 2 * sizeof(void*);  // a place of a vector that grows by doubling
constexpr size_t kBodyCost = 96;             // what values other than numbers have
constexpr size_t kMemoCost = 64;             // an entry of the memo
constexpr size_t kEntryCost = 256;           // an entry of a dict, and where it is found

/// Turns the machine's result into a tree. What the memo shares is copied, within the arena's
/// budget.
class TreeBuilder {
 public:
  TreeBuilder(PickleArena& arena, const PickleErrors& errors) : arena_(arena), errors_(errors) {}

  StateTree tree(PickleValue& value, int depth = 0) {
    if (depth > kDeepestPickled)
      arena_.too_large(fmt::format("its values are nested more than {} deep", kDeepestPickled));
    switch (value.kind) {
      case Kind::none: return {};
      case Kind::boolean: return value.integer != 0;
      case Kind::integer: return value.integer;
      case Kind::real: return value.real;
      case Kind::text: return copied(value.text());
      case Kind::bytes: return StateTree::Bytes{copied(value.text())};
      case Kind::tensor: return value.tensor();
      case Kind::list: return StateTree::List{items(value, depth)};
      case Kind::tuple: return StateTree::Tuple{items(value, depth)};
      case Kind::dict: return dict(value, depth);
      default: errors_.malformed(fmt::format("a {} as a value", kind_name(value.kind)));
    }
  }

 private:
  std::string copied(const std::string& text) {
    arena_.charge(text.size());
    return text;
  }

  std::vector<StateTree> items(const PickleValue& value, int depth) {
    std::vector<StateTree> result;
    arena_.charge(value.items().size() * sizeof(StateTree));
    result.reserve(value.items().size());
    for (auto* item : value.items()) result.push_back(tree(*item, depth + 1));
    return result;
  }

  StateTree dict(const PickleValue& value, int depth) {
    std::map<StateTree::Key, size_t> places;
    StateTree::Dict result;
    arena_.charge(value.items().size() / 2 * kEntryCost);
    result.items.reserve(value.items().size() / 2);
    for (size_t i = 0; i + 1 < value.items().size(); i += 2) {
      auto key = key_of(*value.items()[i]);
      auto item = tree(*value.items()[i + 1], depth + 1);
      const auto [found, fresh] = places.try_emplace(key, result.items.size());
      if (fresh)
        result.items.emplace_back(std::move(key), std::move(item));
      else
        result.items[found->second].second =
            std::move(item);  // as in Python: the first place, the last value
    }
    return result;
  }

  StateTree::Key key_of(PickleValue& value) {
    if (value.kind == Kind::integer) return value.integer;
    if (value.kind == Kind::text) return copied(value.text());
    errors_.malformed(fmt::format("a dict whose key is a {}, expected text or an integer",
                                  kind_name(value.kind)));
  }

  PickleArena& arena_;
  const PickleErrors& errors_;
};

/// The stack machine of Python's pickle, protocols 2 to 4, without the instructions that state
/// dicts do not need.
class PickleMachine {
 public:
  PickleMachine(std::string_view pickle, const std::string& file, StorageSource storages)
      : pickle_(pickle),
        errors_(file),
        arena_(file),
        objects_(arena_, errors_, std::move(storages)) {}

  StateTree run() {
    while (!step(take<uint8_t>())) arena_.set_read(position_);
    auto* result = pop();
    if (!stack_.empty()) errors_.malformed("values are left over at the end of the pickle");
    return TreeBuilder(arena_, errors_).tree(*result);
  }
  size_t position() const { return position_; }

 private:
  std::string_view take(uint64_t count) {
    if (count > pickle_.size() - position_)
      errors_.malformed(fmt::format("byte {} of the pickle claims {} more bytes, {} are left",
                                    position_, count, pickle_.size() - position_));
    const auto bytes = pickle_.substr(position_, size_t(count));
    position_ += size_t(count);
    return bytes;
  }

  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string line() {
    const auto end = pickle_.find('\n', position_);
    if (end == std::string_view::npos) errors_.malformed("a name without end");
    const std::string text(take(end - position_));
    ++position_;
    return text;
  }

  PickleValue* top() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back()))
      errors_.malformed(fmt::format("an empty stack at byte {} of the pickle", position_));
    return stack_.back();
  }

  PickleValue* pop() {
    auto* value = top();
    stack_.pop_back();
    return value;
  }

  std::vector<PickleValue*> pop(size_t count) {
    std::vector<PickleValue*> values(count);
    while (count > 0) values[--count] = pop();
    return values;
  }

  std::vector<PickleValue*> pop_to_mark() {
    if (marks_.empty())
      errors_.malformed(fmt::format("a missing mark at byte {} of the pickle", position_));
    std::vector<PickleValue*> values(stack_.begin() + std::ptrdiff_t(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return values;
  }

  void push(PickleValue* value) {
    if (stack_.size() == highest_) {
      arena_.charge(kSlot);
      ++highest_;
    }
    stack_.push_back(value);
  }
  PickleValue* push(Kind kind) {
    push(arena_.make(kind));
    return stack_.back();
  }
  void push_mark() {
    arena_.charge(kSlot);
    marks_.push_back(stack_.size());
  }
  void push_integer(int64_t value) { push(Kind::integer)->integer = value; }
  /// One that never changes, and of which a pickle may hold millions.
  void push_shared(Kind kind, int64_t value = 0) {
    auto& shared = shared_[{kind, value}];
    if (shared == nullptr) {
      shared = arena_.make(kind);
      shared->integer = value;
    }
    push(shared);
  }
  void push_tuple(std::vector<PickleValue*> items) {
    arena_.charge(items.size() * sizeof(void*));
    push(Kind::tuple)->items() = std::move(items);
  }
  void remember(uint32_t key) {
    auto& place = memo_[key];
    if (place == nullptr) arena_.charge(kMemoCost);
    place = top();
  }
  void push_text(Kind kind, uint64_t size) {
    const auto text = take(size);
    push(kind)->text() = text;
  }

  void push_long(uint64_t size) {
    const auto bytes = take(size);
    if (size > 8)
      errors_.malformed(fmt::format("an integer of {} bytes, at most 8 are supported", size));
    uint64_t value = !bytes.empty() && bytes.back() < 0 ? ~uint64_t{0} : 0;
    for (size_t i = bytes.size(); i-- > 0;)
      value = (value << 8) | static_cast<unsigned char>(bytes[i]);
    push_integer(int64_t(value));
  }

  void push_real() {
    uint64_t bits = 0;
    for (const char byte : take(8)) bits = (bits << 8) | static_cast<unsigned char>(byte);
    push(Kind::real)->real = std::bit_cast<double>(bits);
  }

  void push_global() {
    auto module = line();
    push(objects_.global(std::move(module), line()));
  }

  void push_stack_global() {
    const auto names = pop(2);
    push(objects_.global(errors_.need(names[0], Kind::text, "a module name")->text(),
                         errors_.need(names[1], Kind::text, "a name")->text()));
  }

  void recall(uint32_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end())
      errors_.malformed(fmt::format("memo {} is used before it is set", key));
    push(found->second);
  }

  void extend(Kind kind, const std::vector<PickleValue*>& values) {
    auto& items = errors_.need(top(), kind, "items")->items();
    if (kind == Kind::dict && values.size() % 2 != 0)
      errors_.malformed("a dict key without a value");
    arena_.charge(values.size() * kSlot + (items.empty() ? kBodyCost : 0));
    items.insert(items.end(), values.begin(), values.end());
  }

  void call() {
    const auto parts = pop(2);
    push(objects_.reduce(parts[0], parts[1]));
  }

  void build() {
    auto* state = pop();
    objects_.build(top(), state);
  }

  /// One instruction; true at the end.
  bool step(uint8_t code) {
    switch (code) {
      case 0x80: check_protocol(take<uint8_t>()); break;             // PROTO
      case 0x95: take<uint64_t>(); break;                            // FRAME
      case 'N': push_shared(Kind::none); break;                      // NONE
      case 0x88: push_shared(Kind::boolean, 1); break;               // NEWTRUE
      case 0x89: push_shared(Kind::boolean); break;                  // NEWFALSE
      case 'J': push_integer(take<int32_t>()); break;                // BININT
      case 'K': push_shared(Kind::integer, take<uint8_t>()); break;  // BININT1
      case 'M': push_integer(take<uint16_t>()); break;               // BININT2
      case 0x8A: push_long(take<uint8_t>()); break;                  // LONG1
      case 'G': push_real(); break;                                  // BINFLOAT
      case 'X': push_text(Kind::text, take<uint32_t>()); break;      // BINUNICODE
      case 0x8C: push_text(Kind::text, take<uint8_t>()); break;      // SHORT_BINUNICODE
      case 'B': push_text(Kind::bytes, take<uint32_t>()); break;     // BINBYTES
      case 'C': push_text(Kind::bytes, take<uint8_t>()); break;      // SHORT_BINBYTES
      case 'U': push_text(Kind::bytes, take<uint8_t>()); break;      // SHORT_BINSTRING
      case '}': push(Kind::dict); break;                             // EMPTY_DICT
      case ']': push(Kind::list); break;                             // EMPTY_LIST
      case ')': push(Kind::tuple); break;                            // EMPTY_TUPLE
      case '(': push_mark(); break;                                  // MARK
      case 't': push_tuple(pop_to_mark()); break;                    // TUPLE
      case 0x85: push_tuple(pop(1)); break;                          // TUPLE1
      case 0x86: push_tuple(pop(2)); break;                          // TUPLE2
      case 0x87: push_tuple(pop(3)); break;                          // TUPLE3
      case 'a': extend(Kind::list, pop(1)); break;                   // APPEND
      case 'e': extend(Kind::list, pop_to_mark()); break;            // APPENDS
      case 's': extend(Kind::dict, pop(2)); break;                   // SETITEM
      case 'u': extend(Kind::dict, pop_to_mark()); break;            // SETITEMS
      case 'q': remember(take<uint8_t>()); break;                    // BINPUT
      case 'r': remember(take<uint32_t>()); break;                   // LONG_BINPUT
      case 0x94: remember(uint32_t(memo_.size())); break;            // MEMOIZE
      case 'h': recall(take<uint8_t>()); break;                      // BINGET
      case 'j': recall(take<uint32_t>()); break;                     // LONG_BINGET
      case 'c': push_global(); break;                                // GLOBAL
      case 0x93: push_stack_global(); break;                         // STACK_GLOBAL
      case 'R': call(); break;                                       // REDUCE
      case 'b': build(); break;                                      // BUILD
      case 'Q': push(objects_.storage(pop())); break;                // BINPERSID
      case '.': return true;                                         // STOP
      default:
        errors_.malformed(fmt::format(
            "instruction 0x{:02x} at byte {} of the pickle is not allowed", code, position_ - 1));
    }
    return false;
  }

  void check_protocol(int protocol) const {
    if (protocol < 2 || protocol > 5)
      errors_.malformed(fmt::format("pickle protocol {}, expected 2 to 5", protocol));
  }

  std::string_view pickle_;
  size_t position_ = 0;
  PickleErrors errors_;
  PickleArena arena_;
  PickleObjects objects_;
  std::vector<PickleValue*> stack_;
  size_t highest_ = 0;  // that the stack ever was
  std::vector<size_t> marks_;
  std::map<std::pair<Kind, int64_t>, PickleValue*> shared_;
  std::unordered_map<uint32_t, PickleValue*> memo_;
};

}  // namespace

const char* kind_name(Kind kind) {
  constexpr std::array kNames = {"None",
                                 "bool",
                                 "int",
                                 "float",
                                 "str",
                                 "bytes",
                                 "list",
                                 "tuple",
                                 "dict",
                                 "tensor",
                                 "name of a class or function",
                                 "storage",
                                 "numpy array",
                                 "numpy dtype"};
  return kNames.at(size_t(kind));
}

PickleValue* PickleArena::make(Kind kind) {
  charge(sizeof(PickleValue) + (kind <= Kind::real || kind == Kind::list ? 0 : kBodyCost));
  auto& value = values_.emplace_back();
  value.kind = kind;
  return &value;
}

size_t PickleArena::budget() const { return (kFreeBytes + 4 * read_) * limit_factor(); }

void PickleArena::throw_over_budget() const {
  throw Error("G-PT-5", ErrorKind::checkpoint,
              fmt::format("cannot read {}: its plain values expand to more than {} bytes of "
                          "memory, and only {} bytes were read",
                          file_, budget(), read_),
              "No state of a training run does that, so the file is damaged or hostile. If you "
              "trust it,\nGRADUS_LIMIT_FACTOR=8 in the environment raises this limit eightfold.");
}

void PickleArena::too_large(const std::string& what) const {
  throw Error("G-PT-5", ErrorKind::checkpoint, "cannot read " + file_ + ": " + what,
              "No state of a training run does that. The file is damaged or hostile.");
}

StateTree read_pickle(std::string_view pickle, const std::string& file, StorageSource storages,
                      size_t* used) {
  PickleMachine machine(pickle, file, std::move(storages));
  auto tree = machine.run();
  if (used != nullptr) *used = machine.position();
  return tree;
}

}  // namespace gradus
