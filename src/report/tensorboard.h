// TensorBoard event files: scalars in the record format of TensorFlow (length, masked CRC-32C, a protobuf
// Event, masked CRC-32C), written without protobuf: an event has few fields.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/appended_file.h"

namespace sluice::report {

class TensorBoardWriter {
 public:
  // Opens directory/events.out.tfevents.<time>.<host>. The run goes on with `first_step`: TensorBoard drops
  // what an earlier part of the run wrote from that step on. RunError if the file cannot be written.
  explicit TensorBoardWriter(const std::filesystem::path& directory, int64_t first_step = 0);

  struct Scalar {
    std::string tag;
    double value = 0;
  };
  void write(int64_t step, const std::vector<Scalar>& scalars);
  // For the tab "Text", which reads Markdown.
  void write_text(int64_t step, const std::string& tag, const std::string& markdown);

 private:
  void write_record(std::string_view event);

  base::AppendedFile out_;
};

// CRC-32C (Castagnoli), and TensorFlow's mask of it.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace sluice::report
