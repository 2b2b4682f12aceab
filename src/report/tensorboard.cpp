#include "report/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace sluice::report {

namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ (remainder & 1 ? 0x82F63B78u : 0u);
    table[byte] = remainder;
  }
  return table;
}

template <typename T>
std::string little_endian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varint(uint64_t value) {
  std::string bytes;
  while (value >= 0x80) {
    bytes += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  return bytes + static_cast<char>(value);
}

// Protobuf fields by wire type.
std::string integer_field(int number, int64_t value) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(static_cast<uint64_t>(value));
}
std::string double_field(int number, double value) {
  return varint(static_cast<uint64_t>(number) << 3 | 1) + little_endian(value);
}
std::string float_field(int number, float value) {
  return varint(static_cast<uint64_t>(number) << 3 | 5) + little_endian(value);
}
std::string bytes_field(int number, std::string_view value) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(value.size()) + std::string(value);
}

double wall_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string file_name() {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  return base::text("events.out.tfevents.", static_cast<int64_t>(wall_time_s()), ".", host, ".", ::getpid());
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_crc_table();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& directory, int64_t first_step)
    : out_(directory / file_name()) {
  write_record(double_field(1, wall_time_s()) + bytes_field(3, "brain.Event:2"));
  const std::string start = integer_field(1, 1);  // a SessionLog's status START
  write_record(double_field(1, wall_time_s()) + integer_field(2, first_step) + bytes_field(7, start));
}

void TensorBoardWriter::write(int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    summary += bytes_field(1, bytes_field(1, scalar.tag) + float_field(2, static_cast<float>(scalar.value)));
  }
  write_record(double_field(1, wall_time_s()) + integer_field(2, step) + bytes_field(5, summary));
}

// A tensor of one string (DT_STRING) that the plugin "text" shows, as tf.summary.text writes it.
void TensorBoardWriter::write_text(int64_t step, const std::string& tag, const std::string& markdown) {
  constexpr int64_t kString = 7;
  const std::string tensor = integer_field(1, kString) + bytes_field(2, bytes_field(2, integer_field(1, 1))) +
                             bytes_field(8, markdown);
  const std::string plugin = bytes_field(1, bytes_field(1, "text"));
  const std::string value = bytes_field(1, tag) + bytes_field(9, plugin) + bytes_field(8, tensor);
  write_record(double_field(1, wall_time_s()) + integer_field(2, step) +
               bytes_field(5, bytes_field(1, value)));
}

void TensorBoardWriter::write_record(std::string_view event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  out_.append(length + little_endian(masked_crc32c(length)) + std::string(event) +
              little_endian(masked_crc32c(event)));
}

}  // namespace sluice::report
