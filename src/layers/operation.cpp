#include "layers/operation.h"

namespace sluice::layers {

int64_t State::bytes() {
  int64_t bytes = 0;
  for (const SavedRows& row : rows()) {
    if (row.tensor.defined()) bytes += static_cast<int64_t>(row.tensor.nbytes());
  }
  return bytes;
}

}  // namespace sluice::layers
