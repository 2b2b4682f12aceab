// Responses common to all endpoints: JSON, and faults.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "base/json_fwd.h"
#include "serve/http_server.h"

namespace sluice::serve {

Response json_response(int status, const base::Json& json);

// The request is wrong. `code` is OpenAI's, or "".
Response invalid_request(int status, const std::string& message, const std::string& code = "");

// Status 503: the same request may succeed after so many seconds.
Response retry_later(const std::string& message, const char* seconds, const char* type = "server_error");

// The response if the queue is full.
Response overloaded();

// The response to a client for a fault; `failed` is called if the fault is the server's own.
Response fault_response(const std::exception_ptr& fault,
                        const std::function<void(const std::string& fault)>& failed);

}  // namespace sluice::serve
