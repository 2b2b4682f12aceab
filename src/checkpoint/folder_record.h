// What a Hugging Face folder says beside its model's shape, values and companions: a checkpoint keeps it
// among these, so that an export gives back a folder of the same kind.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/companions.h"
#include "checkpoint/file_names.h"
#include "checkpoint/tensor_type.h"

namespace sluice::checkpoint {

struct FolderRecord {
  std::string origin;                       // the folder, absolute; "": not known
  TensorType type = TensorType::kFloat32;   // of most numbers
  std::map<std::string, TensorType> types;  // of tensors that have another one, by their names in files
  FileNames names;
  bool tied_head = false;  // the files have a tied head, too
  bool quantised = false;  // the files hold fewer bits, which exports don't

  // The type that a tensor has in an export whose weights are of `type`: wider where the folder's is.
  TensorType exported(const std::string& tensor, TensorType type) const;
};

// The companion that is a record; not a file of the folder.
inline constexpr std::string_view kFolderRecord = "sluice_folder.json";

Companion to_companion(const FolderRecord& record);
// The record among them, or one of a folder that Sluice makes. InputError for a damaged one.
FolderRecord folder_record(const std::vector<Companion>& companions);

}  // namespace sluice::checkpoint
