#pragma once

#include <gradus/core/state_tree.h>

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gradus {

/// Turns a tree into the pickle (protocol 2) that `torch.load(weights_only=True)` accepts, and
/// collects the storages it refers to. Throws G-PT-6.
class PickleWriter {
 public:
  /// `file` is named in messages.
  explicit PickleWriter(std::string file) : file_(std::move(file)) {}

  /// The whole pickle.
  std::string write(const StateTree& tree);

  /// The storages in the order of their keys "0", "1" …, still on their device.
  const std::vector<at::Storage>& storages() const { return storages_; }

 private:
  void value(const StateTree& tree, int depth);
  void integer(int64_t number);
  void real(double number);
  void text(std::string_view text);
  void bytes(std::string_view data);
  void sequence(const std::vector<StateTree>& items, int depth);
  void dict(const StateTree& tree, int depth);
  void tensor(const torch::Tensor& tensor);
  void sizes(at::IntArrayRef numbers);
  void global(std::string_view name);
  void empty_ordered_dict();
  size_t storage_key(const torch::Tensor& tensor);
  void code(char opcode) { out_ += opcode; }
  void number(uint64_t value, int count);
  /// Writes a reference to something written before, or remembers it under `name` and returns
  /// false.
  bool recall(const std::string& name);
  void remember(const std::string& name);
  [[noreturn]] void fail(const std::string& what) const;

  std::string file_;
  std::string out_;
  std::unordered_map<std::string, uint32_t> memo_;
  std::vector<at::Storage> storages_;
  std::map<std::pair<const void*, c10::ScalarType>, size_t> keys_;
};

}  // namespace gradus
