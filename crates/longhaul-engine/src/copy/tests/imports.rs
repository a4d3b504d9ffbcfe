//! The structure of this module: no two of its files import each other, directly or around a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module by its path below `copy`.
type Module = Vec<String>;

/// The files below `copy` that are not tests.
fn modules(dir: &Path, above: &[String], found: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let module = [above, std::slice::from_ref(&name)].concat();
        if path.is_dir() && name != "tests" && name != "fuzzing" {
            modules(&path, &module, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !name.ends_with("tests") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
            found.insert(if name == "mod" { above.to_vec() } else { module }, code);
        }
    }
}

/// The paths that `code` imports, each as its parts; the names in braces one by one.
fn imports(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let lines = code.split(';').filter_map(|item| {
        let at = item.rfind("use ")?;
        let before = item[..at].rsplit('\n').next()?.trim();
        (before.is_empty() || before.starts_with("pub")).then(|| item[at + 4..].trim())
    });
    for line in lines {
        let (base, names) = line.split_once('{').unwrap_or((line, ""));
        let parts = |text: &str| -> Vec<String> {
            let words = text.split("::").map(str::trim).filter(|part| !part.is_empty());
            words.map(|part| part.split(" as ").next().unwrap().to_owned()).collect()
        };
        if names.is_empty() {
            paths.push(parts(base));
        }
        for name in names.trim_end_matches('}').split(',').filter(|name| !name.trim().is_empty()) {
            paths.push([parts(base), parts(name)].concat());
        }
    }
    paths
}

/// The path below `copy` that `import` in `module` means; `None` if it leads elsewhere.
fn absolute(module: &[String], import: &[String]) -> Option<Vec<String>> {
    match import.first()?.as_str() {
        "crate" if import.get(1).is_some_and(|part| part == "copy") => Some(import[2..].to_vec()),
        "super" => {
            let up = import.iter().take_while(|part| *part == "super").count();
            let above = module.get(..module.len().checked_sub(up)?)?;
            Some([above, &import[up..]].concat())
        }
        _ => None,
    }
}

/// The file that defines `path`, through the re-exports of directories.
fn file_of(path: &[String], all: &BTreeMap<Module, String>) -> Option<Module> {
    let depth = (0..=path.len()).rev().find(|depth| all.contains_key(&path[..*depth]))?;
    let (module, rest) = path.split_at(depth);
    let is_dir = all.keys().any(|other| other.len() > depth && other.starts_with(module));
    let Some(name) = rest.first().filter(|_| is_dir) else { return Some(module.to_vec()) };
    let exported = imports(&all[module]).into_iter().find(|import| import.last() == Some(name))?;
    let local: Vec<_> = exported.into_iter().filter(|part| part != "self").collect();
    file_of(&[module, &local].concat(), all).filter(|file| file.len() > depth)
}

#[test]
fn no_files_import_each_other() {
    let mut all = BTreeMap::new();
    modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/copy"), &[], &mut all);
    assert!(all.len() > 50, "{:?}", all.keys());
    let is_dir =
        |module: &Module| all.keys().any(|m| m.len() > module.len() && m.starts_with(module));
    let mut edges: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, code) in all.iter().filter(|(module, _)| !is_dir(module)) {
        let paths = imports(code).into_iter().filter_map(|import| absolute(module, &import));
        let files = paths.filter_map(|path| file_of(&path, &all)).filter(|file| file != module);
        edges.insert(module.clone(), files.collect());
    }
    let imported = |from: [&str; 2], to: [&str; 2]| {
        let [from, to] = [from, to].map(|module| module.map(str::to_owned).to_vec());
        edges[&from].contains(&to)
    };
    assert!(imported(["sink", "run"], ["sink", "receive"]), "an import is found");
    assert!(imported(["client", "transfer"], ["source", "run"]), "also through a directory");
    // Files that import nothing more are taken away until none is left, or only circles.
    while let Some(leaf) = edges
        .iter()
        .find(|(_, to)| to.iter().all(|to| !edges.contains_key(to)))
        .map(|(m, _)| m.clone())
    {
        edges.remove(&leaf);
    }
    assert!(edges.is_empty(), "these files import each other: {:?}", edges.keys());
}
