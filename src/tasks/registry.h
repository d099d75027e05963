#pragma once

#include <gradus/tasks/task.h>

namespace gradus {

// One function per task, each in the file of its name.
std::unique_ptr<Task> make_image_classification();

}  // namespace gradus
