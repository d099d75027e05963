#pragma once

#include <gradus/distributed/process_group.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gradus {

/// Parameters that lie one after the other in one buffer, which is cut into equal shares: one for
/// each process.
///
/// `shard` is this process's share, and what is trained. `whole` is what the model computes with;
/// the parameters are views of it. It may be in half precision while the shard is float32, and it
/// may be dropped: the parameters then have no memory, and reading them throws.
/// Thread-safety: none.
class FlatParameters {
 public:
  using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

  /// What this process trains of a parameter: `length` values from `begin` on, in the order of its
  /// memory. They are `values`, a part of the shard.
  struct Part {
    int64_t begin = 0;
    int64_t length = 0;
    int64_t place = 0;  ///< where it begins in the shard
    torch::Tensor values;
  };
  struct Member {
    std::string name;
    torch::Tensor parameter;
    int64_t offset = 0;  ///< in the buffer
    Part part = {};
  };

  /// `parameters` have one type and device. The model computes with them in `dtype`. Without
  /// `has_own_shard` the shard is a view of the whole, which then must not be dropped.
  FlatParameters(const NamedTensors& parameters, torch::ScalarType dtype, bool has_own_shard,
                 int64_t rank, int64_t size);
  ~FlatParameters() = default;
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  const std::vector<Member>& members() const { return members_; }
  const torch::Tensor& shard() const { return shard_; }
  /// Values of a share.
  int64_t share() const { return share_; }
  /// Values of all shares.
  int64_t total() const { return share_ * size_; }
  bool is_trained() const { return is_trained_; }
  /// The memory that the parameters are views of, dropped or not.
  const void* storage() const { return whole_.storage().unsafeGetStorageImpl(); }
  bool is_dropped() const { return is_dropped_; }

  /// Starts to fill the whole from the shards of all processes; makes its memory anew if it was
  /// dropped.
  ProcessGroup::Pending start_gather(ProcessGroup& group);
  /// Frees the memory of the whole.
  void drop();

  /// Starts to gather the shards as they are, and shows them in the parameters. `hide_shards`
  /// undoes it; with `is_written` the shard and the whole take over what the parameters hold.
  ProcessGroup::Pending show_shards(ProcessGroup& group);
  void hide_shards(bool is_written);
  /// The same without the other processes: what they hold is not a number.
  void show_own();
  /// Whether whole and shard are of one type.
  bool is_exact() const { return whole_.scalar_type() == shard_.scalar_type(); }

  /// The parameters get memory of their own, with the values they show.
  void give_back();

 private:
  void view_parameters(const torch::Tensor& of) const;
  void allocate();

  int64_t rank_, size_;
  std::vector<Member> members_;
  int64_t share_ = 0;
  bool is_trained_ = false;
  bool is_dropped_ = false;
  torch::Tensor whole_, shard_;
  torch::Tensor shown_;  // all shards, while they are shown
};

}  // namespace gradus
