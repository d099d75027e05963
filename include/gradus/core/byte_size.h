#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradus {

/// The bytes that a text such as "5MB", "1.5 GiB" or "4096" means; `nullopt` for anything else.
///
/// KB, MB, GB and TB count by 1000 as in huggingface_hub, in capital or small letters: "500Mb" is
/// 500 million bytes. KiB, MiB, GiB and TiB count by 1024. A number alone, or with B, is bytes.
/// Sizes below one byte or beyond 9.2e18 are no sizes.
std::optional<uint64_t> parse_byte_size(std::string_view text);

/// A size for people: "512 B", "3.2 MB", "23.5 GB", counted by 1000.
std::string format_byte_size(double bytes);

}  // namespace gradus
