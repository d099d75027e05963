#include <gradus/core/memory.h>

namespace gradus {

Error out_of_memory(const std::string& doing) {
  return {"G-MEM-1", ErrorKind::io, "memory ran out while " + doing,
          "Give the program more memory, or give it less to do: smaller files, batches or models. "
          "`ulimit -v` and the memory limit of a container count, too."};
}

}  // namespace gradus
