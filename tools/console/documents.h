// The manual page of a program and its completions for shells. They are made from the options that the
// program declares, so they always agree with --help.
//
// Besides names and descriptions, these documents use:
//   - an option's type: completions offer A and B for {A,B}, names of files for FILE, and folders for DIR;
//   - in descriptions and the footer: a line "Title:" opens a list. Each item is an indented line: the term,
//     spaces, its meaning.
#ifndef INTACT_TOOLS_CONSOLE_DOCUMENTS_H_
#define INTACT_TOOLS_CONSOLE_DOCUMENTS_H_

#include <CLI/CLI.hpp>

namespace intact::tools {

/// Adds the option --document for the build: it prints the manual page of `app` (man) or the completions for
/// a shell (bash, zsh, fish). Subcommands and options may be added later. The option itself appears neither
/// in documents nor in --help.
void AddDocumentOption(CLI::App* app);

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_DOCUMENTS_H_
