// Properties of a Hugging Face folder beside its model's shape, values and companions. A checkpoint keeps
// this record as a companion, so that an export gives back a folder of the same kind.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/companions.h"
#include "checkpoint/file_names.h"
#include "checkpoint/tensor_type.h"

namespace sluice::checkpoint {

struct FolderRecord {
  std::string origin;                       // the folder's absolute path; "": unknown
  TensorType type = TensorType::kFloat32;   // the type of most elements
  std::map<std::string, TensorType> types;  // by name in files: tensors of another type
  FileNames names;
  bool tied_head = false;  // the files hold a tied head as well
  bool quantised = false;  // the files hold fewer bits; exports do not

  // A tensor's type in an export whose weights have `type`: FP32 where the folder has FP32, else `type`.
  TensorType exported(const std::string& tensor, TensorType type) const;
};

// The companion that holds the record; it is not a file of the folder.
inline constexpr std::string_view kFolderRecord = "sluice_folder.json";

Companion to_companion(const FolderRecord& record);
// The record among the companions, or the default record if there is none. InputError if damaged.
FolderRecord folder_record(const std::vector<Companion>& companions);

}  // namespace sluice::checkpoint
