use longhaul_core::result::Diagnosis;

/// The page of a diagnosis.
pub fn diagnosis_html(diagnosis: &Diagnosis) -> String {
    diagnosis.sentence.clone()
}
