#pragma once

#include <gradus/config/launch_environment.h>
#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class Store;
}  // namespace c10d

namespace gradus {

/// Where the processes of a run find each other, and how long they wait.
struct Rendezvous {
  std::string address = "127.0.0.1";  ///< The machine of rank 0, or of torchrun's agent.
  uint16_t port = 29500;              ///< The port of the store there.
  bool is_agents_store = false;       ///< torchrun's agent holds the store, not rank 0.
  std::string attempt = "0";          ///< Which start of the run this is; a restart has another.
  /// How long a process waits for the others: at the start, and in every exchange.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

/// Reads MASTER_ADDR and MASTER_PORT, and what torchrun says of its agent and restarts. Throws
/// `Error` (usage) G-DIST-1 for a port that is none, or for several processes without an address.
Rendezvous rendezvous_from_environment(const LaunchEnvironment& here);

/// The processes of a run, and what they exchange. This is c10d: Gloo, and NCCL for tensors on a
/// GPU after `use_nccl`. Without NCCL they travel by way of the host.
///
/// Every process calls the same functions in the same order. An exchange that fails, because a
/// process ended, hangs or cannot be reached, throws `Error` G-DIST-2 in all others. The message
/// names that process, and its reason when it gave one (`fail`). The first process that is left
/// gives advice, too; a program may keep quiet about errors without it, which say the same.
/// Afterwards the group is of no use.
/// Thread-safety: none, except that `Pending::wait` may run on another thread.
class ProcessGroup {
 public:
  /// Waits until all processes are there. Throws `Error` G-DIST-3 with the ranks that are missing
  /// and the address, when that takes longer than the timeout.
  static std::shared_ptr<ProcessGroup> join(const LaunchEnvironment& here, const Rendezvous& place);
  /// The group of all processes of this run; null when there is one process only. It is made at the
  /// first call, from the environment (`launch_environment`, `rendezvous_from_environment`), and
  /// lives as long as the process. Throws what `join` and those two throw.
  static std::shared_ptr<ProcessGroup> of_this_run(std::chrono::milliseconds timeout);
  /// A group of this process alone, which takes the same way as several.
  static std::shared_ptr<ProcessGroup> alone(std::chrono::milliseconds timeout);
  /// The group of the processes that meet in `store`. The others reach this process at `address`;
  /// empty: at what the name of this machine means, or at the interface GLOO_SOCKET_IFNAME.
  /// Groups of the same processes have different names for their `channel`.
  ProcessGroup(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t size,
               std::chrono::milliseconds timeout, const std::string& address = "127.0.0.1",
               const std::string& channel = "");
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  /// Which process this is, from 0.
  int64_t rank() const { return rank_; }
  /// How many there are.
  int64_t size() const { return size_; }
  /// How long a process waits in an exchange.
  std::chrono::milliseconds timeout() const;
  /// Whether an exchange has failed, or this process has left. May be called from any thread.
  bool is_lost() const;

  /// From now on NCCL exchanges tensors on `device`, the GPU of this process, on streams of its
  /// own: `Pending::wait` makes the current stream wait, not the host, and may be part of a
  /// recorded CUDA graph. Everything on CPUs still goes through Gloo. Every process calls it.
  /// Throws `Error` (usage) G-DIST-6 when this build has no NCCL, and G-DIST-2 when the GPUs cannot
  /// be connected.
  void use_nccl(torch::Device device);
  /// Whether NCCL exchanges tensors on GPUs.
  bool has_nccl() const;

  /// Another group of the same processes, whose exchanges need not be in the same order relative to
  /// those of this one. Every process calls it with the same `name`, once.
  std::shared_ptr<ProcessGroup> channel(const std::string& name) const;

  /// An exchange that was started and not yet waited for.
  class Pending {
   public:
    /// Nothing.
    Pending() = default;
    /// Returns when the result is there; with NCCL, when work that is launched next will find it.
    /// Throws `Error` G-DIST-2.
    void wait();

   private:
    friend class ProcessGroup;
    explicit Pending(std::function<void()> wait) : wait_(std::move(wait)) {}

    std::function<void()> wait_;
  };

  /// Starts to replace `value` by its sum over all processes. `value` must be contiguous, and must
  /// not be touched before `wait`. The sum has the same bits everywhere.
  Pending start_sum(torch::Tensor value);
  /// Replaces `value` by its sum over all processes.
  void sum(torch::Tensor value) { start_sum(std::move(value)).wait(); }
  /// Starts to fill `all`, a vector, with `part` of every process, by rank. Both must be
  /// contiguous, and must not be touched before `wait`. `part` may lie at its place in `all`.
  Pending start_gather(torch::Tensor all, torch::Tensor part);
  /// Starts to exchange parts of equal size: part r of `sent` goes to process r, which finds it in
  /// `received` at the place of the sender. As above for both.
  Pending start_all_to_all(torch::Tensor received, torch::Tensor sent);
  /// Replaces `value` by that of process `root`.
  void broadcast(torch::Tensor value, int64_t root = 0);
  /// `value` of every process, by rank. Types and shapes must be equal.
  std::vector<torch::Tensor> gather(const torch::Tensor& value);
  /// The bytes of every process, by rank; the lengths may differ.
  std::vector<std::string> gather_bytes(const std::string& bytes);
  /// Returns when every process has called it.
  void barrier();

  /// Tells the others why this process leaves, and closes its connections: their exchanges throw
  /// with this reason. The group is of no use afterwards.
  void fail(const std::string& reason) noexcept;

 private:
  struct Connection;
  /// Starts an exchange of tensors like `value`; `start` returns c10d's work.
  template <class Start>
  Pending exchange(const char* what, const torch::Tensor& value, Start start);
  bool goes_by_host(const torch::Tensor& value) const;
  [[noreturn]] void throw_lost(const char* what, const std::string& reason);

  int64_t rank_;
  int64_t size_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace gradus
