// The standard streams of a program, at its start and its end.
#pragma once

namespace sparkv {

// Call first in main. Opens /dev/null for each of stdin, stdout and stderr that is closed, so that
// no later file gets its number and is read or written by mistake.
void OpenStandardStreams();

// Call last in main: flushes stdout. What could not be written (a full disk) becomes a sentence on
// stderr and exit code 1 instead of 0; another code stays.
int FinishStdout(const char* program, int exit_code);

}  // namespace sparkv
