"""Labels: what people, or another model, say of judgments that the judge gave too. What a judge is measured against."""
